#include "initiator/vfio_pci/iommu.h"

#include <fcntl.h>
#include <linux/vfio.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "flashmob/error.h"
#include "initiator/vfio_pci/iommufd_abi.h"

namespace flashmob::initiator {
namespace {

namespace fs = std::filesystem;
using vfio::UniqueFd;

[[noreturn]] void fail(const std::string& address, const std::string& why) {
  throw ConfigError("pci:" + address + ": " + why);
}

std::string reason() { return std::strerror(errno); }

UniqueFd open_file(const std::string& path) { return UniqueFd(open(path.c_str(), O_RDWR | O_CLOEXEC)); }

// Where a kernel does not say what it translates, what every IOMMU of 39 bits does, without a PC's interrupt messages.
std::vector<IovaRange> common_ranges() { return {{0, 0xFEDF'FFFF}, {0xFEF0'0000, (std::uint64_t{1} << 39) - 1}}; }

class Container final : public Iommu {
 public:
  explicit Container(UniqueFd fd) : fd_(std::move(fd)) {}

  std::vector<IovaRange> usable() const override {
    std::vector<std::byte> answer(sizeof(vfio_iommu_type1_info));
    // The first time says how much room the capabilities need.
    for (int round = 0; round < 2; ++round) {
      vfio_iommu_type1_info info{};
      info.argsz = static_cast<std::uint32_t>(answer.size());
      std::memcpy(answer.data(), &info, sizeof(info));
      if (ioctl(fd_.get(), VFIO_IOMMU_GET_INFO, answer.data()) != 0) return common_ranges();
      std::memcpy(&info, answer.data(), sizeof(info));
      if (info.argsz > answer.size()) {
        answer.resize(info.argsz);
        continue;
      }
      if ((info.flags & VFIO_IOMMU_INFO_CAPS) == 0) break;
      return ranges_of(answer, info.cap_offset);
    }
    return common_ranges();
  }

  bool map(std::uint64_t iova, void* host, std::size_t bytes) override {
    vfio_iommu_type1_dma_map request{};
    request.argsz = sizeof(request);
    request.flags = VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE;
    request.vaddr = reinterpret_cast<std::uint64_t>(host);
    request.iova = iova;
    request.size = bytes;
    return ioctl(fd_.get(), VFIO_IOMMU_MAP_DMA, &request) == 0;
  }

  void unmap(std::uint64_t iova, std::size_t bytes) override {
    vfio_iommu_type1_dma_unmap request{};
    request.argsz = sizeof(request);
    request.iova = iova;
    request.size = bytes;
    ioctl(fd_.get(), VFIO_IOMMU_UNMAP_DMA, &request);
  }

 private:
  static std::vector<IovaRange> ranges_of(const std::vector<std::byte>& answer, std::uint32_t at) {
    for (int hops = 0; at != 0 && hops < 16 && at + sizeof(vfio_info_cap_header) <= answer.size(); ++hops) {
      vfio_info_cap_header header{};
      std::memcpy(&header, answer.data() + at, sizeof(header));
      const std::size_t first = at + sizeof(vfio_iommu_type1_info_cap_iova_range);
      if (header.id == VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE && first <= answer.size()) {
        vfio_iommu_type1_info_cap_iova_range found{};
        std::memcpy(&found, answer.data() + at, sizeof(found));
        std::vector<IovaRange> ranges(
            std::min<std::size_t>(found.nr_iovas, (answer.size() - first) / sizeof(IovaRange)));
        if (!ranges.empty()) std::memcpy(ranges.data(), answer.data() + first, ranges.size() * sizeof(IovaRange));
        return ranges;
      }
      at = header.next;
    }
    return common_ranges();
  }

  UniqueFd fd_;
};

class Iommufd final : public Iommu {
 public:
  Iommufd(UniqueFd fd, std::uint32_t space_id) : fd_(std::move(fd)), space_id_(space_id) {}

  std::vector<IovaRange> usable() const override {
    std::vector<IovaRange> ranges(16);
    for (int round = 0; round < 4; ++round) {
      iommufd::Ranges request{};
      request.size = sizeof(request);
      request.space_id = space_id_;
      request.count = static_cast<std::uint32_t>(ranges.size());
      request.ranges = reinterpret_cast<std::uint64_t>(ranges.data());
      const bool fits = ioctl(fd_.get(), iommufd::kRanges, &request) == 0;
      if (!fits && errno != EMSGSIZE) break;
      ranges.resize(request.count);
      if (fits) return ranges;
    }
    return common_ranges();
  }

  bool map(std::uint64_t iova, void* host, std::size_t bytes) override {
    iommufd::Map request{};
    request.size = sizeof(request);
    request.flags = iommufd::kMapFixed | iommufd::kMapWritable | iommufd::kMapReadable;
    request.space_id = space_id_;
    request.host = reinterpret_cast<std::uint64_t>(host);
    request.bytes = bytes;
    request.iova = iova;
    return ioctl(fd_.get(), iommufd::kMap, &request) == 0;
  }

  void unmap(std::uint64_t iova, std::size_t bytes) override {
    iommufd::Unmap request{sizeof(iommufd::Unmap), space_id_, iova, bytes};
    ioctl(fd_.get(), iommufd::kUnmap, &request);
  }

 private:
  UniqueFd fd_;
  std::uint32_t space_id_;
};

// The name at the end of a link of sysfs; empty where there is none.
std::string link_name(const fs::path& link) {
  std::error_code error;
  return fs::read_symlink(link, error).filename().string();
}

// The function's own file under /dev/vfio/devices; empty where the kernel has none.
std::string own_file(const fs::path& function, const std::string& dev) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(function / "vfio-dev", error)) {
    std::string path = dev + "/vfio/devices/" + entry.path().filename().string();
    if (fs::exists(path, error)) return path;
  }
  return {};
}

[[noreturn]] void fail_open(const std::string& address, const std::string& path) {
  if (errno == EBUSY) fail(address, "another program has it (" + path + "); end that program first");
  if (errno == EACCES || errno == EPERM)
    fail(address, path + " may not be opened; run: sudo flashmob pci bind " + address + ", or give yourself that file");
  fail(address, path + " cannot be opened (" + reason() + "); load the kernel's module: sudo modprobe vfio-pci");
}

LentFunction borrow_by_iommufd(const std::string& address, const std::string& file, const std::string& dev) {
  UniqueFd space = open_file(dev + "/iommu");
  if (!space) fail_open(address, dev + "/iommu");
  UniqueFd device = open_file(file);
  if (!device) fail_open(address, file);
  iommufd::BindDevice bind{sizeof(iommufd::BindDevice), 0, space.get(), 0};
  if (ioctl(device.get(), iommufd::kBindDevice, &bind) != 0) fail_open(address, file);
  iommufd::AllocateSpace allocate{sizeof(iommufd::AllocateSpace), 0, 0};
  if (ioctl(space.get(), iommufd::kAllocateSpace, &allocate) != 0)
    fail(address, "the kernel gives it no addresses (" + reason() + "); look into the kernel's log");
  iommufd::AttachDevice attach{sizeof(iommufd::AttachDevice), 0, allocate.space_id};
  if (ioctl(device.get(), iommufd::kAttachDevice, &attach) != 0)
    fail(address, "the kernel does not put it behind the IOMMU (" + reason() + "); look into the kernel's log");
  return {std::make_unique<Iommufd>(std::move(space), allocate.space_id), UniqueFd(), std::move(device)};
}

LentFunction borrow_by_group(const std::string& address, const std::string& group_name, const std::string& dev) {
  const std::string path = dev + "/vfio/" + group_name;
  UniqueFd container = open_file(dev + "/vfio/vfio");
  if (!container) fail_open(address, dev + "/vfio/vfio");
  if (ioctl(container.get(), VFIO_GET_API_VERSION) != VFIO_API_VERSION ||
      ioctl(container.get(), VFIO_CHECK_EXTENSION, VFIO_TYPE1v2_IOMMU) != 1)
    fail(address, "the kernel lends it by no way we know; load the kernel's module: sudo modprobe vfio_iommu_type1");
  UniqueFd group = open_file(path);
  if (!group) fail_open(address, path);
  vfio_group_status status{};
  status.argsz = sizeof(status);
  if (ioctl(group.get(), VFIO_GROUP_GET_STATUS, &status) != 0) fail_open(address, path);
  if ((status.flags & VFIO_GROUP_FLAGS_VIABLE) == 0)
    fail(address, "other devices of its IOMMU group " + group_name +
                      " have drivers of the kernel; unbind those too, or use another slot");
  const int container_fd = container.get();
  if (ioctl(group.get(), VFIO_GROUP_SET_CONTAINER, &container_fd) != 0) fail_open(address, path);
  if (ioctl(container.get(), VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU) != 0)
    fail(address, "the kernel does not put it behind the IOMMU (" + reason() + "); look into the kernel's log");
  UniqueFd device(ioctl(group.get(), VFIO_GROUP_GET_DEVICE_FD, address.c_str()));
  if (!device) fail_open(address, path);
  return {std::make_unique<Container>(std::move(container)), std::move(group), std::move(device)};
}

bool is_hex(char sign) { return (sign >= '0' && sign <= '9') || (sign >= 'a' && sign <= 'f'); }

}  // namespace

bool is_pci_address(const std::string& text) {
  constexpr std::string_view kForm = "xxxx:xx:xx.7";
  return text.size() == kForm.size() && std::ranges::equal(text, kForm, [](char sign, char form) {
           if (form == 'x') return is_hex(sign);
           return form == '7' ? sign >= '0' && sign <= '7' : sign == form;
         });
}

LentFunction borrow_function(const std::string& address, const std::string& sysfs, const std::string& dev) {
  if (!is_pci_address(address))
    fail(address, "is no address of a PCI function; write one as lspci -D does, 0000:00:04.0");
  const fs::path function = fs::path(sysfs) / "bus/pci/devices" / address;
  std::error_code error;
  if (!fs::exists(function, error)) fail(address, "there is no such PCI function; flashmob pci list names the drives");
  const std::string driver = link_name(function / "driver");
  if (driver != "vfio-pci")
    fail(address, (driver.empty() ? "it has no driver" : "the kernel's driver " + driver + " has it") +
                      "; run: sudo flashmob pci bind " + address);
  const std::string group = link_name(function / "iommu_group");
  // A group without an IOMMU is named for what it is: the drive could write to all of the machine's memory.
  if (group.empty() || fs::exists(dev + "/vfio/noiommu-" + group, error))
    fail(address,
         "no IOMMU stands between it and the machine's memory, and without one we do not use it; turn the IOMMU on "
         "(in the firmware, and intel_iommu=on on the kernel's command line)");
  const std::string file = own_file(function, dev);
  if (!file.empty() && fs::exists(dev + "/iommu", error)) return borrow_by_iommufd(address, file, dev);
  return borrow_by_group(address, group, dev);
}

}  // namespace flashmob::initiator
