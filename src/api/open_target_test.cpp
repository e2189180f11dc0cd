// What names a door, and what a benchmark's options say of it.
#include "api/open_target.h"

#include <gtest/gtest.h>

#include "flashmob/error.h"

namespace flashmob::api {
namespace {

TEST(OpenTarget, NamesOneOfTheDoors) {
  for (const char* const address :
       {"", "vfio-user:", "nvme-tcp:", "nvme-tcp:127.0.0.1:4420", "nvme-tcp:127.0.0.1:4420/",
        "nvme-tcp:127.0.0.1:port/nqn", "/tmp/cntrl", "vfio-pci:0000:01:00.0", "pci:", "pci:01:00.0"}) {
    EXPECT_THROW(check_target({.address = address}), ConfigError) << address;
    EXPECT_THROW(open_target({.address = address}), ConfigError) << address;
  }
  check_target({.address = "vfio-user:/tmp/cntrl"});
  check_target({.address = "nvme-tcp:127.0.0.1:4420/nqn.2014-08.org.nvmexpress:ssd"});
  check_target({.address = "pci:0000:01:00.0"});
  EXPECT_THROW(open_target({.address = "pci:ffff:ff:1f.7"}), ConfigError) << "there is no such function";
  EXPECT_THROW(open_target({.address = "vfio-user:/nowhere/at/all"}), ConfigError) << "nobody serves there";
}

TEST(OpenTarget, ADriveOfThisMachineIsOnlyWrittenWhereThatIsAllowed) {
  EXPECT_TRUE(is_pci("pci:ffff:ff:1f.7"));
  EXPECT_FALSE(is_pci("vfio-user:pci:"));
  BenchOptions options;
  options.target = "pci:ffff:ff:1f.7";
  options.rw = "randwrite";
  const auto refusal = [&options] {
    try {
      Bench(DeviceConfig{}, options).run();
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_NE(refusal().find("would be overwritten, and nobody allowed that"), std::string::npos) << refusal();
  options.allow_writes = true;
  EXPECT_NE(refusal().find("there is no such PCI function"), std::string::npos) << refusal();
  options.allow_writes = false;
  options.rw = "randread";
  EXPECT_NE(refusal().find("there is no such PCI function"), std::string::npos) << refusal();
}

TEST(OpenTarget, ABenchmarksOptionsSayWhoseDoorAndWhoWeAre) {
  BenchOptions options;
  options.target = "nvme-tcp:127.0.0.1:4420/nqn";
  options.host_nqn = "host";
  options.host_key = "a";
  options.controller_key = "b";
  options.tls_key = "c";
  options.secure_channel = true;
  options.header_digest = true;
  options.threads = 3;
  const Target target = target_of(options);
  EXPECT_EQ(target.address, options.target);
  EXPECT_EQ(target.host_nqn, "host");
  EXPECT_EQ(target.host_key, "a");
  EXPECT_EQ(target.controller_key, "b");
  EXPECT_EQ(target.tls_key, "c");
  EXPECT_TRUE(target.secure_channel);
  EXPECT_TRUE(target.header_digest);
  EXPECT_FALSE(target.data_digest);
  EXPECT_EQ(target.threads, 3u);
}

}  // namespace
}  // namespace flashmob::api
