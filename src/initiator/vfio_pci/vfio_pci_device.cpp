#include "initiator/vfio_pci/vfio_pci_device.h"

#include <linux/vfio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "vfio/pci_config.h"

namespace flashmob::initiator {
namespace {

constexpr std::uint64_t kDoorbellOffset = 0x1000;
constexpr std::size_t kDoorbellPageBytes = 4096;
constexpr std::size_t kDoorbellSpanBytes = driver::PciDevice::kAllDoorbellBytes;
// Beyond every vector.
constexpr std::uint32_t kStopMark = 0x10000;
constexpr std::uint32_t kRemovalMark = 0x10001;

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

}  // namespace

VfioPciDevice::VfioPciDevice(const std::string& address) : address_(address), lent_(borrow_function(address)) {
  examine_function();
  if (!enable_function()) fail("its command register cannot be written; look into the kernel's log");
  space_.emplace(lent_.iommu->usable());
  map_doorbells();
  start_events();
}

VfioPciDevice::~VfioPciDevice() {
  if (thread_.joinable()) {
    const std::uint64_t one = 1;
    FLASHMOB_CHECK(write(stop_.get(), &one, sizeof(one)) == sizeof(one));
    thread_.join();
  }
  doorbells_guard_.reset();
  if (doorbells_ != nullptr) munmap(doorbells_, kDoorbellSpanBytes);
}

void VfioPciDevice::fail(const std::string& why) const { throw ConfigError("pci:" + address_ + ": " + why); }

VfioPciDevice::Region VfioPciDevice::region(std::uint32_t index) const {
  vfio_region_info info{};
  info.argsz = sizeof(info);
  info.index = index;
  if (ioctl(lent_.device.get(), VFIO_DEVICE_GET_REGION_INFO, &info) != 0)
    fail(std::string("the kernel does not say where its registers lie (") + std::strerror(errno) +
         "); look into the kernel's log");
  return {info.offset, info.size, info.flags};
}

void VfioPciDevice::examine_function() {
  vfio_device_info info{};
  info.argsz = sizeof(info);
  if (ioctl(lent_.device.get(), VFIO_DEVICE_GET_INFO, &info) != 0 || (info.flags & VFIO_DEVICE_FLAGS_PCI) == 0)
    fail("what the kernel lends is no PCI function; name a drive that flashmob pci list shows");
  can_reset_ = (info.flags & VFIO_DEVICE_FLAGS_RESET) != 0;
  config_ = region(VFIO_PCI_CONFIG_REGION_INDEX);
  bar0_ = region(VFIO_PCI_BAR0_REGION_INDEX);
  vfio::PciHeader header{};
  if (!read_at(config_, 0, bytes_of(header))) fail("its configuration space cannot be read; is the drive still there?");
  const auto& code = header.class_code;
  const std::uint32_t class_code = code[0] | (std::uint32_t{code[1]} << 8) | (std::uint32_t{code[2]} << 16);
  if (class_code != vfio::kNvmeClassCode) fail("it is no NVMe controller; name a drive that flashmob pci list shows");
  vectors_ = count_vectors();
}

// What a host's PCI code does before a driver's probe: registers answer, and the function may reach memory.
bool VfioPciDevice::enable_function() {
  std::uint16_t command = 0;
  constexpr std::uint64_t kCommandOffset = offsetof(vfio::PciHeader, command);
  if (!read_at(config_, kCommandOffset, bytes_of(command))) return false;
  command |= vfio::kCommandMemory | vfio::kCommandBusMaster;
  return write_at(config_, kCommandOffset, bytes_of(command));
}

void VfioPciDevice::map_doorbells() {
  // Kernels before 4.16 leave the table of interrupts out of what can be mapped; ours need no such exception.
  if ((bar0_.flags & VFIO_REGION_INFO_FLAG_MMAP) == 0 || bar0_.bytes <= kDoorbellOffset)
    fail("its doorbells cannot be mapped; use another drive");
  const std::size_t bytes = std::min<std::size_t>(bar0_.bytes - kDoorbellOffset, kDoorbellSpanBytes);
  void* const span =
      mmap(nullptr, kDoorbellSpanBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (span == MAP_FAILED) fail("there is no address space left for its doorbells; raise the limit (ulimit -v)");
  if (mmap(span, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, lent_.device.get(),
           static_cast<off_t>(bar0_.offset + kDoorbellOffset)) == MAP_FAILED) {
    const int error = errno;
    munmap(span, kDoorbellSpanBytes);
    fail(std::string("its doorbells cannot be mapped (") + std::strerror(error) + "); look into the kernel's log");
  }
  doorbells_ = static_cast<std::uint32_t*>(span);
  doorbell_bytes_ = bytes;
  // The kernel takes them away when the drive is pulled.
  doorbells_guard_.emplace(span, kDoorbellSpanBytes, kDoorbellPageBytes);
}

bool VfioPciDevice::read_at(const Region& from, std::uint64_t offset, std::span<std::byte> out) const {
  if (lost_.load(std::memory_order_relaxed)) return false;
  return pread(lent_.device.get(), out.data(), out.size(), static_cast<off_t>(from.offset + offset)) ==
         static_cast<ssize_t>(out.size());
}

bool VfioPciDevice::write_at(const Region& to, std::uint64_t offset, std::span<const std::byte> data) const {
  if (lost_.load(std::memory_order_relaxed)) return false;
  return pwrite(lent_.device.get(), data.data(), data.size(), static_cast<off_t>(to.offset + offset)) ==
         static_cast<ssize_t>(data.size());
}

std::uint32_t VfioPciDevice::read32(std::uint32_t offset) {
  std::uint32_t value = 0;
  return read_at(bar0_, offset, bytes_of(value)) ? value : ~std::uint32_t{0};
}

std::uint64_t VfioPciDevice::read64(std::uint32_t offset) {
  std::uint64_t value = 0;
  return read_at(bar0_, offset, bytes_of(value)) ? value : ~std::uint64_t{0};
}

void VfioPciDevice::write32(std::uint32_t offset, std::uint32_t value) { write_at(bar0_, offset, bytes_of(value)); }

void VfioPciDevice::write64(std::uint32_t offset, std::uint64_t value) { write_at(bar0_, offset, bytes_of(value)); }

std::uint64_t VfioPciDevice::choose_iova(const void*, std::size_t bytes) {
  const std::lock_guard lock(space_mutex_);
  return space_->allocate(bytes);
}

void VfioPciDevice::dma_map(std::uint64_t iova, void* host, std::size_t bytes) {
  const std::lock_guard lock(space_mutex_);
  if (!space_->holds(iova, bytes) && !space_->take(iova, bytes))
    fail("the address " + std::to_string(iova) + " is taken or beyond its IOMMU; let the device choose it");
  if (lent_.iommu->map(iova, host, bytes)) return;
  const int error = errno;
  space_->release(iova);
  const std::string what = std::to_string(bytes) + " bytes cannot be lent to it (" + std::strerror(error) + "); ";
  if (error == ENOMEM || error == EPERM)
    fail(what + "raise the limit of locked memory (ulimit -l unlimited), or use fewer queues");
  if (error == ENOSPC) fail(what + "raise dma_entry_limit of vfio_iommu_type1, or use fewer queues");
  fail(what + "look into the kernel's log");
}

void VfioPciDevice::dma_unmap(std::uint64_t iova, std::size_t bytes) {
  const std::lock_guard lock(space_mutex_);
  if (!space_->holds(iova, bytes)) return;
  lent_.iommu->unmap(iova, bytes);
  space_->release(iova);
}

bool VfioPciDevice::reset() {
  if (!can_reset_ || !present()) return false;
  if (ioctl(lent_.device.get(), VFIO_DEVICE_RESET) != 0) return false;
  return enable_function();
}

std::uint32_t VfioPciDevice::count_vectors() const {
  vfio_irq_info info{};
  info.argsz = sizeof(info);
  info.index = VFIO_PCI_MSIX_IRQ_INDEX;
  if (ioctl(lent_.device.get(), VFIO_DEVICE_GET_IRQ_INFO, &info) != 0) return 0;
  return std::min(info.count, vfio::kMsixMaxVectors);
}

int VfioPciDevice::set_events(std::uint32_t index, std::uint32_t first, std::span<const int> events) const {
  std::vector<std::byte> request(sizeof(vfio_irq_set) + events.size_bytes());
  vfio_irq_set set{};
  set.argsz = static_cast<std::uint32_t>(request.size());
  set.flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
  set.index = index;
  set.start = first;
  set.count = static_cast<std::uint32_t>(events.size());
  std::memcpy(request.data(), &set, sizeof(set));
  std::memcpy(request.data() + sizeof(set), events.data(), events.size_bytes());
  return ioctl(lent_.device.get(), VFIO_DEVICE_SET_IRQS, request.data());
}

void VfioPciDevice::start_events() {
  poller_ = vfio::UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  stop_ = vfio::UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  removal_ = vfio::UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event stop{.events = EPOLLIN, .data = {.u32 = kStopMark}};
  epoll_event removal{.events = EPOLLIN, .data = {.u32 = kRemovalMark}};
  if (!poller_ || !stop_ || !removal_ || epoll_ctl(poller_.get(), EPOLL_CTL_ADD, stop_.get(), &stop) != 0 ||
      epoll_ctl(poller_.get(), EPOLL_CTL_ADD, removal_.get(), &removal) != 0)
    fail("no file descriptors are left for interrupts; raise the limit of open files (ulimit -n)");
  // Without it a removal is seen by registers that read as all ones.
  const std::array asked{removal_.get()};
  set_events(VFIO_PCI_REQ_IRQ_INDEX, 0, asked);
  // All vectors at once, without events yet: kernels before 6.4 add none later. The kernel may have fewer to give.
  while (vectors_ > 0) {
    const std::vector<int> none(vectors_, -1);
    const int answer = set_events(VFIO_PCI_MSIX_IRQ_INDEX, 0, none);
    if (answer == 0) break;
    const bool knows_better = answer > 0 && static_cast<std::uint32_t>(answer) < vectors_;
    vectors_ = knows_better ? static_cast<std::uint32_t>(answer) : vectors_ / 2;
  }
  handlers_.emplace(vectors_);
  thread_ = std::thread([this] { event_loop(); });
}

void VfioPciDevice::set_interrupt(std::uint16_t vector, std::function<void()> handler) {
  const bool masks = !handler;
  handlers_->set(vector, std::move(handler));
  const std::lock_guard lock(events_mutex_);
  // A masked vector keeps its event: the drive goes on to signal it, and nobody is called.
  if (masks || events_.contains(vector)) return;
  vfio::UniqueFd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event watched{.events = EPOLLIN, .data = {.u32 = vector}};
  if (!event || epoll_ctl(poller_.get(), EPOLL_CTL_ADD, event.get(), &watched) != 0)
    fail("no file descriptors are left for interrupts; raise the limit of open files (ulimit -n)");
  const std::array given{event.get()};
  if (set_events(VFIO_PCI_MSIX_IRQ_INDEX, vector, given) != 0 && present())
    fail("the kernel refuses interrupt vector " + std::to_string(vector) + " (" + std::strerror(errno) +
         "); use fewer queues with interrupts");
  events_.emplace(vector, std::move(event));
}

void VfioPciDevice::event_loop() {
  std::array<epoll_event, 64> events{};
  for (;;) {
    const int count = epoll_wait(poller_.get(), events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < count; ++i) {
      const std::uint32_t mark = events[static_cast<std::size_t>(i)].data.u32;
      if (mark == kStopMark) return;
      if (mark == kRemovalMark) {
        lost_.store(true, std::memory_order_release);
        // Asked again every now and then, and once is enough.
        epoll_ctl(poller_.get(), EPOLL_CTL_DEL, removal_.get(), nullptr);
        continue;
      }
      const auto vector = static_cast<std::uint16_t>(mark);
      int event = -1;
      {
        const std::lock_guard lock(events_mutex_);
        const auto found = events_.find(vector);
        if (found != events_.end()) event = found->second.get();
      }
      std::uint64_t signals = 0;
      if (event >= 0 && read(event, &signals, sizeof(signals)) == sizeof(signals)) handlers_->fire(vector);
    }
  }
}

}  // namespace flashmob::initiator
