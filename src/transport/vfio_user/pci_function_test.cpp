#include "transport/vfio_user/pci_function.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <vector>

namespace flashmob::transport {
namespace {

using namespace flashmob::vfio;

struct PciFunctionTest : testing::Test {
  template <class T>
  T get(std::size_t offset) {
    T value{};
    pci.read(offset, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  template <class T>
  bool put(std::size_t offset, T value) {
    return pci.write(offset, std::as_bytes(std::span(&value, 1)));
  }
  // Offsets of the capabilities by their identifiers, in the order of the list.
  std::map<unsigned, std::size_t> capabilities() {
    std::map<unsigned, std::size_t> found;
    std::size_t at = get<std::uint8_t>(0x34);
    for (int i = 0; at != 0 && i < 48; ++i) {
      EXPECT_EQ(at % 4, 0u);
      EXPECT_TRUE(found.emplace(get<std::uint8_t>(at), at).second) << "each once";
      at = get<std::uint8_t>(at + 1);
    }
    return found;
  }

  PciFunction pci{2 * 65 * 4, 65, 0xF1A5};
};

TEST_F(PciFunctionTest, ItIsAnNvmeController) {
  EXPECT_EQ(get<std::uint16_t>(0), 0xF1A5);
  EXPECT_EQ(get<std::uint32_t>(8) >> 8, 0x010802u);
  EXPECT_EQ(get<std::uint8_t>(0xE), 0u) << "an endpoint of one function";
  EXPECT_EQ(get<std::uint8_t>(0x3D), 1u) << "INTA";
  EXPECT_NE(get<std::uint16_t>(6) & kStatusCapabilities, 0);
  EXPECT_EQ(get<std::uint32_t>(0x100), 0u) << "no extended capabilities";
}

TEST_F(PciFunctionTest, ItHasTheCapabilitiesOfOne) {
  const auto found = capabilities();
  ASSERT_EQ(found.size(), 3u);
  const std::size_t msix = found.at(kCapabilityMsix);
  EXPECT_EQ(get<std::uint16_t>(msix + 2), 64u) << "65 vectors, 0's based";
  EXPECT_EQ(get<std::uint32_t>(msix + 4), 4u) << "the table begins BAR 4";
  EXPECT_EQ(get<std::uint32_t>(msix + 8), 0x8004u);
  const std::size_t express = found.at(kCapabilityPciExpress);
  EXPECT_EQ(get<std::uint16_t>(express + 2), 2u) << "version 2, endpoint";
  EXPECT_NE(get<std::uint32_t>(express + 4) & kExpressFunctionReset, 0u);
  const std::size_t power = found.at(kCapabilityPowerManagement);
  EXPECT_EQ(get<std::uint16_t>(power + 2) & 7, 3);
}

TEST_F(PciFunctionTest, BarsTellTheirSizes) {
  EXPECT_EQ(pci.registers_bar_bytes(), 0x2000u);
  for (const auto& [bar, bytes] : {std::pair{0x10u, std::uint64_t{0x2000}}, {0x20u, PciFunction::msix_bar_bytes()}}) {
    put<std::uint64_t>(bar, UINT64_MAX);
    const auto mask = get<std::uint64_t>(bar);
    EXPECT_EQ(mask & 0xF, 4u) << "memory of 64 bits";
    EXPECT_EQ(~(mask & ~std::uint64_t{0xF}) + 1, bytes);
    put<std::uint64_t>(bar, 0x123456789000);
    EXPECT_EQ(get<std::uint64_t>(bar), (0x123456789000 & ~(bytes - 1)) | 4);
  }
  for (const unsigned bar : {0x18u, 0x1Cu, 0x30u}) {
    put<std::uint32_t>(bar, UINT32_MAX);
    EXPECT_EQ(get<std::uint32_t>(bar), 0u) << "not implemented";
  }
}

TEST_F(PciFunctionTest, LargeDevicesHaveLargeBars) {
  EXPECT_EQ(PciFunction(2 * 4097 * 4, 2048, 1).registers_bar_bytes(), 0x10000u);
  EXPECT_EQ(PciFunction(4096, 1, 1).registers_bar_bytes(), 0x2000u);
  EXPECT_EQ(PciFunction(4100, 1, 1).registers_bar_bytes(), 0x4000u);
}

TEST_F(PciFunctionTest, OnlyWritableBitsAreWritten) {
  std::vector<std::byte> before(kConfigSpaceBytes), after(kConfigSpaceBytes);
  pci.read(0, before);
  const std::vector<std::byte> ones(kConfigSpaceBytes, std::byte{0xFF});
  EXPECT_TRUE(pci.write(0, ones)) << "the reset bit is among them";
  pci.read(0, after);
  const std::map<std::size_t, unsigned> written{{4, 0x46},    {5, 0x05},    {0x0C, 0xFF},
                                                {0x3C, 0xFF}, {0x44, 0x03}, {0x53, 0xC0}};
  for (std::size_t i = 0; i < 0x60; ++i) {
    if (i >= 0x10 && i < 0x28) continue;  // BARs
    const auto changed = std::to_integer<unsigned>(before[i] ^ after[i]);
    EXPECT_EQ(changed, written.contains(i) ? written.at(i) : 0u) << i;
  }
  EXPECT_EQ(get<std::uint16_t>(0x68) & 0x8000, 0) << "the reset bit reads as zero";
  pci.reset();
  pci.read(0, after);
  EXPECT_EQ(before, after);
}

TEST_F(PciFunctionTest, ResetIsAskedForByItsBitAlone) {
  EXPECT_FALSE(put<std::uint16_t>(0x68, 0x7FFF));
  EXPECT_FALSE(put<std::uint8_t>(0x68, 0xFF));
  EXPECT_TRUE(put<std::uint8_t>(0x69, 0x80));
  EXPECT_TRUE(put<std::uint16_t>(0x68, 0x8000));
  EXPECT_TRUE(put<std::uint32_t>(0x66, 0x80000000));
}

TEST_F(PciFunctionTest, PowerStatesThatDoNotExistAreNotEntered) {
  const std::size_t control = 0x44;
  put<std::uint16_t>(control, 3);
  EXPECT_EQ(get<std::uint16_t>(control) & 3, 3) << "D3hot";
  put<std::uint16_t>(control, 1);
  EXPECT_EQ(get<std::uint16_t>(control) & 3, 0);
  EXPECT_NE(get<std::uint16_t>(control) & kPowerNoSoftReset, 0);
}

TEST_F(PciFunctionTest, TheInterruptBitFollowsTheLine) {
  pci.show_intx(true);
  EXPECT_EQ(get<std::uint16_t>(6), kStatusInterrupt | kStatusCapabilities);
  pci.show_intx(false);
  EXPECT_EQ(get<std::uint16_t>(6), kStatusCapabilities);
  EXPECT_FALSE(pci.intx_disabled());
  put<std::uint16_t>(4, kCommandIntxDisable);
  EXPECT_TRUE(pci.intx_disabled());
}

}  // namespace
}  // namespace flashmob::transport
