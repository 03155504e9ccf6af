// A cluster of three Redis servers, as a fixture.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "redis_server.h"

namespace kvt {

class RedisCluster : public ::testing::Test {
 public:
  static constexpr size_t kBytes = 500;

 protected:
  virtual std::vector<std::string> more_options() { return {}; }
  virtual int port_of(const RedisServer &node) const { return node.port(); }  // at which the nodes find each other

  void SetUp() override {
    std::vector<std::string> options = {"--cluster-node-timeout", "2000", "--cluster-require-full-coverage", "no"};
    for (const std::string &option : more_options()) options.push_back(option);
    for (int n = 0; n < 3; ++n) {
      nodes.push_back(std::make_unique<RedisServer>(options, RedisServer::kClusterNode));
      ids.push_back(nodes[size_t(n)]->run({"CLUSTER", "MYID"}));
    }
    const char *ranges[3][2] = {{"0", "5460"}, {"5461", "10922"}, {"10923", "16383"}};
    for (size_t n = 0; n < 3; ++n) {
      ASSERT_EQ(nodes[n]->run({"CLUSTER", "ADDSLOTSRANGE", ranges[n][0], ranges[n][1]}), "OK");
      ASSERT_EQ(nodes[n]->run({"CLUSTER", "SET-CONFIG-EPOCH", std::to_string(n + 1)}), "OK");
    }
    for (size_t n = 1; n < 3; ++n) {
      ASSERT_EQ(nodes[0]->run({"CLUSTER", "MEET", "127.0.0.1", std::to_string(port_of(*nodes[n])),
                               std::to_string(nodes[n]->bus_port())}),
                "OK");
    }
    for (const auto &node : nodes) {
      for (int tries = 0;; ++tries) {
        const std::string info = node->run({"CLUSTER", "INFO"});
        if (info.find("cluster_state:ok") != std::string::npos &&
            info.find("cluster_slots_ok:16384") != std::string::npos &&
            info.find("cluster_known_nodes:3") != std::string::npos) {
          break;
        }
        ASSERT_LT(tries, 3000) << info;
        ::usleep(10000);
      }
    }
  }
  int slot(uint64_t number) { return std::stoi(nodes[0]->run({"CLUSTER", "KEYSLOT", key_text(number)})); }
  size_t node_of(uint64_t number) {
    const int s = slot(number);
    return s <= 5460 ? 0 : s <= 10922 ? 1 : 2;
  }
  void expect_loads(TierDriver &tier, uint64_t number) {
    Bytes loaded(kBytes, 'x');
    EXPECT_EQ(tier.load(number, &loaded), KVC_TIER_OK) << number << ", errno " << tier.os_error();
    EXPECT_TRUE(loaded == payload_of(number, 0, kBytes));
  }

  std::vector<std::unique_ptr<RedisServer>> nodes;
  std::vector<std::string> ids;
};

}  // namespace kvt
