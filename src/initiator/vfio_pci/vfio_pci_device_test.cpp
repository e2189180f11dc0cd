// What is said where a function cannot be borrowed, over made trees of sysfs; the rest needs a drive behind an IOMMU
// and is tested in a guest (tests/hosts).
#include "initiator/vfio_pci/vfio_pci_device.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "flashmob/error.h"

namespace flashmob::initiator {
namespace {

namespace fs = std::filesystem;

class BorrowFunction : public ::testing::Test {
 protected:
  static constexpr const char* kAddress = "0000:00:04.0";

  BorrowFunction() {
    std::string name = (fs::temp_directory_path() / "flashmob-pci-XXXXXX").string();
    root_ = mkdtemp(name.data());
    fs::create_directories(function());
    fs::create_directories(root_ / "dev/vfio");
  }
  ~BorrowFunction() override { fs::remove_all(root_); }

  fs::path function() const { return root_ / "sys/bus/pci/devices" / kAddress; }
  void set_driver(const std::string& name) {
    fs::create_directory_symlink("../../../bus/pci/drivers/" + name, function() / "driver");
  }
  void set_group(const std::string& name) {
    fs::create_directory_symlink("../../../kernel/iommu_groups/" + name, function() / "iommu_group");
  }
  void make_file(const std::string& name) {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << "\n";
  }
  std::string refusal(const std::string& address = kAddress) {
    try {
      borrow_function(address, (root_ / "sys").string(), (root_ / "dev").string());
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "lent";
  }
  void expect_refusal(const std::string& part) { EXPECT_NE(refusal().find(part), std::string::npos) << refusal(); }

  fs::path root_;
};

TEST_F(BorrowFunction, TakesAddressesAsSysfsWritesThem) {
  EXPECT_TRUE(is_pci_address("0000:00:04.0"));
  EXPECT_TRUE(is_pci_address("10ab:ff:1f.7"));
  for (const char* const text : {"", "00:04.0", "0000:00:04.8", "0000:00:04", "0000:00:04.0 ", "0000:00:0G.0",
                                 "0000:00:0A.0", "../../../../x", "0000-00:04.0"}) {
    EXPECT_FALSE(is_pci_address(text)) << text;
    EXPECT_NE(refusal(text).find("is no address of a PCI function"), std::string::npos) << text;
  }
  EXPECT_NE(refusal("0000:00:05.0").find("there is no such PCI function"), std::string::npos);
}

TEST_F(BorrowFunction, LeavesADriveToTheDriverThatHasIt) {
  expect_refusal("it has no driver; run: sudo flashmob pci bind 0000:00:04.0");
  set_driver("nvme");
  expect_refusal("the kernel's driver nvme has it; run: sudo flashmob pci bind 0000:00:04.0");
}

TEST_F(BorrowFunction, UsesNoDriveWithoutAnIommu) {
  set_driver("vfio-pci");
  expect_refusal("no IOMMU stands between");
  set_group("7");
  make_file("dev/vfio/noiommu-7");
  expect_refusal("no IOMMU stands between");
}

TEST_F(BorrowFunction, SaysWhichFileCannotBeOpened) {
  set_driver("vfio-pci");
  set_group("7");
  expect_refusal("dev/vfio/vfio cannot be opened (No such file or directory); load the kernel's module");
  make_file("dev/vfio/vfio");
  expect_refusal("the kernel lends it by no way we know");
}

TEST_F(BorrowFunction, PrefersTheFunctionsOwnFile) {
  set_driver("vfio-pci");
  set_group("7");
  fs::create_directories(function() / "vfio-dev/vfio0");
  make_file("dev/vfio/devices/vfio0");
  expect_refusal("dev/vfio/vfio cannot be opened");
  make_file("dev/iommu");
  expect_refusal("dev/vfio/devices/vfio0 cannot be opened");
}

}  // namespace
}  // namespace flashmob::initiator
