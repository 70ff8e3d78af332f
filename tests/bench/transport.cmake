# The transport's ceilings (for precis_bench) and its own small benchmark.
precis_library(precis_transport_ceilings
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/transport_ceilings.cc
  PUBLIC precis_schema
  INCLUDE ${PROJECT_SOURCE_DIR})
precis_executable(precis_bench_transport
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/bench_transport.cc
  LIBS precis_transport precis_transport_ceilings)
