#include "cachesvc/server/tenants.h"

#include <catch2/catch.hpp>

namespace precis {
namespace {

const Nonce kChallenge = make_nonce();

Hello hello(const std::string& tenant, const std::string& token = "") {
  Hello greeting{kProtocolVersion, "test/1", tenant, make_nonce(), {}};
  greeting.proof = client_proof(token, kChallenge, greeting);
  return greeting;
}

Result<Tenant> admit(const Tenants& tenants, const std::string& tenant,
                     const std::string& token = "") {
  return tenants.admit(hello(tenant, token), kChallenge);
}

}  // namespace

TEST_CASE("without configured tenants everybody is the default tenant", "[unit][server]") {
  const Tenants tenants({});
  for (const char* token : {"", "any"}) {
    const auto admitted = admit(tenants, "", token);
    REQUIRE(admitted.ok());
    CHECK(admitted->name == "default");
    CHECK(admitted->token.empty());
  }
  CHECK(admit(tenants, "other").status().code() == StatusCode::kPermissionDenied);
}

TEST_CASE("a tenant is admitted with its own token only", "[unit][server]") {
  const Tenants tenants({{"red", "secret", "pepper"}, {"blue", "other", ""}});
  const auto red = admit(tenants, "red", "secret");
  REQUIRE(red.ok());
  CHECK(red->salt == "pepper");
  CHECK(red->token == "secret");
  CHECK(tenants.named("red").salt == "pepper");
  for (const char* token : {"", "secre", "secrets", "other"}) {
    CHECK(admit(tenants, "red", token).status().code() == StatusCode::kPermissionDenied);
  }
  CHECK(admit(tenants, "").status().code() == StatusCode::kPermissionDenied);
  // A tenant that does not exist is refused with the same words.
  for (const char* name : {"red", "green"}) {
    CHECK_THAT(admit(tenants, name, "guess").status().message(),
               Catch::Contains("'" + std::string(name) + "' is not admitted with this token") &&
                   Catch::Contains("PRECIS_TOKEN"));
  }
}

TEST_CASE("a client that names no tenant is the default one, under one name", "[unit][server]") {
  CHECK(Tenants::name_of("") == Tenants::name_of("default"));
  CHECK(Tenants::name_of("red") == "red");
  CHECK(Tenants({{"red", "secret", ""}}).has("red"));
  CHECK_FALSE(Tenants({{"red", "secret", ""}}).has(Tenants::name_of("")));
}

TEST_CASE("a client stays where its tenant's salt, role and its own token are as before",
          "[unit][server]") {
  const Tenant before = Tenants({{"red", "secret", "pepper"}}).named("red");
  const auto stays = [&](const std::vector<TenantConfig>& tenants) {
    return Tenants(tenants).may_stay(before);
  };
  CHECK(stays({{"blue", "x", ""}, {"red", "secret", "pepper", 2, "a file"}}));
  CHECK_FALSE(stays({{"red", "other", "pepper"}}));
  CHECK_FALSE(stays({{"red", "", "pepper"}}));
  CHECK_FALSE(stays({{"red", "secret", "salt"}}));
  CHECK_FALSE(stays({{"blue", "x", ""}}));
  CHECK_FALSE(stays({}));  // only the default tenant
  TenantConfig reader{"red", "secret", "pepper"};
  reader.role = "reader";
  CHECK_FALSE(stays({reader}));
}

TEST_CASE("each valid token of a stored tenant admits, and its clients stay while it is valid",
          "[unit][server]") {
  TenantConfig stored{"red", "", ""};
  stored.issued = {"new", "old"};
  Tenants tenants({stored});
  const auto with_new = admit(tenants, "red", "new"), with_old = admit(tenants, "red", "old");
  REQUIRE(with_new.ok());
  REQUIRE(with_old.ok());
  CHECK(with_new->token == "new");
  CHECK(with_old->token == "old");
  for (const char* token : {"", "other", "no such token"}) {
    CHECK(admit(tenants, "red", token).status().code() == StatusCode::kPermissionDenied);
  }
  stored.issued = {"new"};
  tenants.apply({stored});
  CHECK(tenants.may_stay(*with_new));
  CHECK_FALSE(tenants.may_stay(*with_old));
  CHECK(admit(tenants, "red", "old").status().code() == StatusCode::kPermissionDenied);
}

TEST_CASE("weights that are configured anew count for connections that are open",
          "[unit][server]") {
  Tenants tenants({{"red", "", "", 1}, {"blue", "", "", 1}});
  const Tenant red = tenants.named("red"), blue = tenants.named("blue");  // of open connections
  FairQueue<std::string> queue;
  const auto wait = [&queue](const Tenant& tenant) {
    for (int i = 0; i < 100; ++i) queue.push(tenant.owner(&tenant), tenant.name);
  };
  const auto red_turns = [&queue](int turns) {
    int red_had = 0;
    for (int i = 0; i < turns; ++i) red_had += queue.pop() == "red" ? 1 : 0;
    return red_had;
  };
  wait(red);
  wait(blue);
  CHECK(red_turns(40) == 20);
  tenants.apply({{"red", "", "", 3}, {"blue", "", "", 1}});
  CHECK(red_turns(40) == 30);  // of items queued before the change
  wait(red);
  CHECK(red_turns(40) == 30);
  tenants.apply({{"blue", "", "", 1}});
  tenants.apply({{"red", "", "", 2}, {"blue", "", "", 1}});
  CHECK(tenants.named("red").weight.get() == 2);
}

TEST_CASE("a tenant that is not there is not admitted with any token", "[unit][server]") {
  const Tenants tenants({{"red", "secret", ""}, {"open", "", ""}});
  for (const char* token : {"", "secret", "no such tenant"}) {
    CHECK(admit(tenants, "green", token).status().code() == StatusCode::kPermissionDenied);
  }
}

TEST_CASE("a proof admits for the challenge, the nonce, the tenant and the client that it is of",
          "[unit][server]") {
  const Tenants tenants({{"red", "secret", ""}, {"blue", "secret", ""}});
  const Hello right = hello("red", "secret");
  REQUIRE(tenants.admit(right, kChallenge).ok());
  CHECK_FALSE(tenants.admit(right, make_nonce()).ok());
  Hello other = right;
  other.tenant = "blue";
  CHECK_FALSE(tenants.admit(other, kChallenge).ok());
  other = right;
  other.client = "another";
  CHECK_FALSE(tenants.admit(other, kChallenge).ok());
  other = right;
  other.nonce = make_nonce();
  CHECK_FALSE(tenants.admit(other, kChallenge).ok());
}

TEST_CASE("another protocol version is refused before the token is looked at", "[unit][server]") {
  const Tenants tenants({{"red", "secret", ""}});
  Hello foreign = hello("red");
  foreign.protocol_version = 99;
  const auto refused = tenants.admit(foreign, kChallenge);
  CHECK(refused.status().code() == StatusCode::kVersionMismatch);
  CHECK_THAT(
      refused.status().message(),
      Catch::Contains("99") && Catch::Contains("speaks " + std::to_string(kProtocolVersion)));
}

}  // namespace precis
