# precis_types: the shared types, the only library that kernels need. Uses the standard library, and
# nlohmann-json if it is found: without it, recipes written as JSON are refused.
find_package(nlohmann_json QUIET)
set(recipe_json src/recipe_no_json.cc)
if(nlohmann_json_FOUND)
  set(recipe_json src/recipe_json.cc)
endif()
list(TRANSFORM recipe_json PREPEND ${CMAKE_CURRENT_LIST_DIR}/)

precis_library(precis_types
  SOURCES
    ${CMAKE_CURRENT_LIST_DIR}/src/status.cc ${CMAKE_CURRENT_LIST_DIR}/src/types.cc
    ${CMAKE_CURRENT_LIST_DIR}/src/budget.cc ${CMAKE_CURRENT_LIST_DIR}/src/device_choice.cc
    ${CMAKE_CURRENT_LIST_DIR}/src/highest_averages.cc
    ${CMAKE_CURRENT_LIST_DIR}/src/keep.cc ${CMAKE_CURRENT_LIST_DIR}/src/loss_budget.cc
    ${CMAKE_CURRENT_LIST_DIR}/src/presets.cc
    ${CMAKE_CURRENT_LIST_DIR}/src/profile_table.cc
    ${CMAKE_CURRENT_LIST_DIR}/src/recipe_fields.cc ${CMAKE_CURRENT_LIST_DIR}/src/recipe_rules.cc
    ${CMAKE_CURRENT_LIST_DIR}/src/recipe_text.cc ${CMAKE_CURRENT_LIST_DIR}/src/role.cc
    ${CMAKE_CURRENT_LIST_DIR}/src/entry_form.cc
    ${CMAKE_CURRENT_LIST_DIR}/src/printable.cc ${CMAKE_CURRENT_LIST_DIR}/src/read_file.cc
    ${CMAKE_CURRENT_LIST_DIR}/src/utf8.cc ${recipe_json}
  INCLUDE ${CMAKE_CURRENT_LIST_DIR}/include)
if(nlohmann_json_FOUND)
  target_link_libraries(precis_types PRIVATE $<BUILD_INTERFACE:nlohmann_json::nlohmann_json>)
endif()
