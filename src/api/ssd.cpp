// flashmob::Ssd and flashmob::Queue: an emulated SSD in this process behind the in-process door.
#include "flashmob/ssd.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "api/device.h"
#include "driver/data_buffer.h"
#include "driver/nvme_driver.h"
#include "nvme/identify_namespace.h"
#include "nvme/opcode.h"

namespace flashmob {
namespace {

// Requests are bounced through slots of this size; larger ones become several commands.
constexpr std::uint64_t kSlotBytes = 128 * 1024;
// As the driver's for admin commands.
constexpr std::uint64_t kTimeoutNs = 10'000'000'000;
// How often a wait without completions looks whether the controller has died.
constexpr std::uint64_t kFatalCheckNs = 10'000'000;

// What the driver throws, under the names that the public header gives it.
template <class F>
decltype(auto) translated(F&& step) {
  try {
    return step();
  } catch (const driver::NvmeTimeout& error) {
    throw TimeoutError(error.what());
  } catch (const driver::NvmeFatal& error) {
    throw FatalError(error.what());
  } catch (const driver::NvmeError& error) {
    throw StatusError(error.what(), error.status_field());
  }
}

}  // namespace

struct Ssd::Impl {
  Clock clock = Clock::real();
  // The driver is for one thread at a time, and may wait long for the device. Taken before `mutex`.
  std::recursive_mutex admin;
  std::recursive_mutex mutex;  // of what follows; never held while the device is waited for
  std::unique_ptr<api::Device> device;
  std::unique_ptr<driver::NvmeDriver> driver;
  std::uint32_t max_queues = 0;
  std::uint32_t queues = 0;  // alive; their DMA memory needs the device
  std::atomic<bool> closed = false;
  std::map<std::uint32_t, std::uint32_t> lba_bytes;  // by nsid; nobody but us could change a format
  std::atomic<std::uint64_t> timeout_ns = kTimeoutNs;
  std::atomic<std::uint64_t> resets = 0;       // a queue pair lives until the next one
  std::atomic<std::uint64_t> outstanding = 0;  // commands of all queues
  std::atomic<std::uint64_t> written_off = 0;  // commands that are outstanding no longer, but still count as lost

  // Frees the device once it is closed and no queue needs it. mutex held.
  void free_if_unused() {
    if (!closed || queues != 0) return;
    driver.reset();
    device.reset();
  }

  void require_open() const {
    if (closed) throw std::runtime_error("the SSD is closed");
  }
  // Where other queues lose commands, too, what is lost of one alone is not known.
  bool only_lost_left() {
    const std::lock_guard lock(mutex);
    const std::uint64_t left = outstanding;
    return left != 0 && !closed && left <= device->engine().faults().lost_ios() - written_off;
  }
  // The queue pair of so many commands is gone. Not all of them need have been lost, but so nobody is hurried.
  void write_off(std::uint32_t commands) {
    const std::lock_guard lock(mutex);
    outstanding -= commands;
    written_off = std::min(device->engine().faults().lost_ios(), written_off + commands);
  }
  bool is_dead() {
    const std::lock_guard lock(mutex);
    require_open();
    return driver->fatal();
  }
};

Ssd::Ssd(const DeviceConfig& config) : impl_(std::make_shared<Impl>()) {
  impl_->device = std::make_unique<api::Device>(config, impl_->clock);
  impl_->device->start();
  const driver::Waiter waiter{[] { std::this_thread::yield(); }, [clock = impl_->clock] { return clock.now_ns(); }};
  impl_->driver = std::make_unique<driver::NvmeDriver>(impl_->device->pci(), waiter);
  impl_->driver->enable();
  impl_->max_queues = std::min(config.controller.max_queue_pairs, 1024u);
  impl_->driver->request_queues(impl_->max_queues);
}

Ssd::~Ssd() { close(); }

void Ssd::close() {
  const std::lock_guard admin(impl_->admin);
  if (impl_->closed.exchange(true)) return;
  // A controller that is told to lose commands, or that died of a fault, must not keep its owner.
  impl_->device->engine().faults().set({});
  try {
    if (!impl_->driver->fatal()) impl_->driver->shutdown(false);
  } catch (const std::exception&) {
    // It does not answer; the reset is what is left.
  }
  try {
    impl_->driver->disable();
  } catch (const std::exception&) {
    // Freeing the DMA memory takes its mappings away.
  }
  const std::lock_guard lock(impl_->mutex);
  impl_->free_if_unused();
}

void Ssd::set_timeout(std::uint64_t timeout_ns) {
  const std::lock_guard admin(impl_->admin);
  impl_->require_open();
  impl_->timeout_ns = timeout_ns;
  impl_->driver->admin_timeout_ns = timeout_ns;
}

void Ssd::reset() {
  const std::lock_guard admin(impl_->admin);
  impl_->require_open();
  ++impl_->resets;
  translated([&] {
    impl_->driver->enable();
    impl_->driver->request_queues(impl_->max_queues);
  });
  const std::lock_guard lock(impl_->mutex);
  impl_->outstanding = 0;
  impl_->written_off = impl_->device->engine().faults().lost_ios();
}

bool Ssd::fatal() const { return impl_->is_dead(); }

bool Ssd::only_lost_left() const { return impl_->only_lost_left(); }

std::uint32_t Ssd::namespace_count() const {
  const std::lock_guard admin(impl_->admin);
  impl_->require_open();
  std::array<std::uint32_t, 1024> list{};
  translated([&] { impl_->driver->identify(0x02, 0, std::as_writable_bytes(std::span(list))); });
  return static_cast<std::uint32_t>(std::count_if(list.begin(), list.end(), [](std::uint32_t id) { return id != 0; }));
}

std::string Ssd::identify(std::uint8_t cns, std::uint32_t nsid, std::uint8_t csi) const {
  const std::lock_guard admin(impl_->admin);
  impl_->require_open();
  std::string data(4096, '\0');
  translated([&] { impl_->driver->identify(cns, nsid, std::as_writable_bytes(std::span(data)), 0, csi); });
  return data;
}

std::string Ssd::log_page(std::uint8_t lid, std::uint32_t bytes, std::uint32_t nsid) const {
  const std::lock_guard admin(impl_->admin);
  impl_->require_open();
  std::string data((bytes + 3) / 4 * 4, '\0');
  translated([&] { impl_->driver->log_page(lid, nsid, 0, std::as_writable_bytes(std::span(data))); });
  data.resize(bytes);
  return data;
}

void Ssd::set_faults(const std::vector<std::string>& rules) {
  const std::lock_guard lock(impl_->mutex);
  impl_->require_open();
  impl_->device->engine().faults().set(rules);
}

std::vector<FaultCount> Ssd::faults() const {
  const std::lock_guard lock(impl_->mutex);
  impl_->require_open();
  return impl_->device->engine().faults().counts();
}

std::uint32_t Ssd::lba_bytes(std::uint32_t nsid) const {
  {
    const std::lock_guard lock(impl_->mutex);
    const auto known = impl_->lba_bytes.find(nsid);
    if (known != impl_->lba_bytes.end()) return known->second;
  }
  const std::string data = identify(0x00, nsid);
  nvme::IdentifyNamespace id;
  std::memcpy(&id, data.data(), sizeof(id));
  if (id.nsze == 0) throw std::runtime_error("namespace " + std::to_string(nsid) + " is not active");
  const std::uint32_t bytes = 1u << id.lbaf[id.flbas & 0xF].lbads;
  const std::lock_guard lock(impl_->mutex);
  impl_->lba_bytes[nsid] = bytes;
  return bytes;
}

std::uint64_t Ssd::namespace_bytes(std::uint32_t nsid) const {
  const std::string data = identify(0x00, nsid);
  nvme::IdentifyNamespace id;
  std::memcpy(&id, data.data(), sizeof(id));
  if (id.nsze == 0) throw std::runtime_error("namespace " + std::to_string(nsid) + " is not active");
  return id.nsze << id.lbaf[id.flbas & 0xF].lbads;
}

struct Queue::Impl {
  // One user request, which may be several commands.
  struct Request {
    Done done;
    std::uint32_t parts = 0;
    std::uint16_t status = 0;
    bool forgotten = false;  // its owner has been told that it failed: buffer and `done` are no longer ours
  };
  struct Slot {
    std::shared_ptr<Request> request;  // dropped with the slots where the SSD closes first
    std::byte* user = nullptr;  // where a read's bytes go
    std::uint64_t bytes = 0;
  };

  std::shared_ptr<Ssd::Impl> ssd;
  std::uint64_t resets = 0;  // of the SSD when `pair` was made
  driver::QueuePair* pair = nullptr;
  std::unique_ptr<driver::DmaMemory> memory;
  std::unique_ptr<driver::PrpLists> lists;
  std::vector<Slot> slots;
  std::vector<std::uint16_t> free;
  std::vector<std::uint32_t> lba_bytes;  // by nsid, looked up once
  std::uint32_t requests = 0;

  ~Impl() {
    const std::lock_guard admin(ssd->admin);
    try {
      if (!ssd->closed && pair != nullptr && resets == ssd->resets) {
        ssd->write_off(pair->outstanding());
        ssd->driver->delete_queue_pair(*pair);
      }
    } catch (const std::exception&) {
      // The controller is dead or keeps silent; close() will reset it.
    }
    lists.reset();
    memory.reset();
    const std::lock_guard lock(ssd->mutex);
    --ssd->queues;
    ssd->free_if_unused();
  }

  // The pair goes with the SSD, and with a reset.
  void require_pair() const {
    ssd->require_open();
    if (resets != ssd->resets) throw std::runtime_error("the queue is gone: the SSD was reset");
  }

  // Runs completions; returns how many whole requests finished.
  unsigned poll() {
    require_pair();
    unsigned finished = 0;
    const std::uint32_t reaped = pair->reap(pair->sq_entries(), [&](const nvme::Cqe& entry) {
      Slot& slot = slots[entry.cid];
      const std::shared_ptr<Request> request = std::move(slot.request);
      const auto status = static_cast<std::uint16_t>(entry.status_phase >> 1);
      if (status != 0)
        request->status = status;
      else if (slot.user != nullptr && !request->forgotten)
        std::memcpy(slot.user, buffer(entry.cid), slot.bytes);
      free.push_back(entry.cid);
      if (--request->parts != 0 || request->forgotten) return;
      --requests;
      ++finished;
      request->done(request->status);
    });
    if (reaped != 0) ssd->outstanding -= reaped;
    pair->ring_cq();
    return finished;
  }

  std::byte* buffer(std::uint16_t cid) const { return memory->data() + kSlotBytes * cid; }

  // Polls until `ready` holds; throws if nothing completes for the time-out, or the controller has died.
  template <class F>
  void wait_until(F&& ready) {
    std::uint64_t progress_ns = ssd->clock.now_ns();
    std::uint64_t checked_ns = progress_ns;
    while (!ready()) {
      require_pair();
      const std::uint32_t before = pair->outstanding();
      poll();
      const std::uint64_t now_ns = ssd->clock.now_ns();
      if (pair->outstanding() != before) {
        progress_ns = now_ns;
        continue;
      }
      if (now_ns - progress_ns > ssd->timeout_ns)
        throw TimeoutError(std::to_string(before) + " commands were not completed within " +
                           std::to_string(ssd->timeout_ns / 1'000'000) + " ms");
      if (now_ns - checked_ns > kFatalCheckNs) {
        checked_ns = now_ns;
        if (ssd->is_dead()) throw FatalError("the controller reports a fatal status; nothing will be completed");
      }
      std::this_thread::yield();
    }
  }

  std::uint16_t take_slot() {
    wait_until([this] { return !free.empty(); });
    const std::uint16_t cid = free.back();
    free.pop_back();
    return cid;
  }

  // The buffer is the caller's again when this throws, so what was started before is forgotten.
  std::uint16_t take_slot_for(Request& request) {
    try {
      return take_slot();
    } catch (...) {
      request.forgotten = true;
      --requests;
      throw;
    }
  }

  std::uint32_t lba_bytes_of(const Ssd& owner, std::uint32_t nsid) {
    if (nsid >= lba_bytes.size()) lba_bytes.resize(nsid + 1, 0);
    if (lba_bytes[nsid] == 0) lba_bytes[nsid] = owner.lba_bytes(nsid);
    return lba_bytes[nsid];
  }

  void transfer(nvme::NvmOpcode opcode, std::uint32_t nsid, std::uint64_t lba, std::byte* user, std::uint64_t bytes,
                std::uint32_t lba_size, Done done) {
    require_pair();
    if (bytes == 0 || bytes % lba_size != 0)
      throw std::invalid_argument("buffer of " + std::to_string(bytes) + " bytes is not a multiple of the LBA size, " +
                                  std::to_string(lba_size));
    const auto parts = static_cast<std::uint32_t>((bytes + kSlotBytes - 1) / kSlotBytes);
    const auto request = std::make_shared<Request>(Request{std::move(done), parts});
    ++requests;
    for (std::uint64_t at = 0; at < bytes; at += kSlotBytes) {
      const std::uint64_t part = std::min(kSlotBytes, bytes - at);
      const std::uint16_t cid = take_slot_for(*request);
      const bool is_write = opcode == nvme::NvmOpcode::write;
      if (is_write) std::memcpy(buffer(cid), user + at, part);
      slots[cid] = {request, is_write ? nullptr : user + at, part};
      nvme::Sqe sqe{};
      const std::uint64_t slba = lba + at / lba_size;
      sqe.opcode = static_cast<std::uint8_t>(opcode);
      sqe.cid = cid;
      sqe.nsid = nsid;
      sqe.cdw10 = static_cast<std::uint32_t>(slba);
      sqe.cdw11 = static_cast<std::uint32_t>(slba >> 32);
      sqe.cdw12 = static_cast<std::uint32_t>(part / lba_size - 1);
      lists->describe(cid, sqe, reinterpret_cast<std::uint64_t>(buffer(cid)), part);
      submit(sqe);
    }
  }

  void submit(const nvme::Sqe& sqe) {
    ++ssd->outstanding;
    pair->submit() = sqe;
    pair->ring_sq();
  }
};

std::unique_ptr<Queue> Ssd::queue(std::uint32_t depth) {
  if (depth < 1 || depth > 1024) throw ConfigError("queue depth must be 1...1024");
  const std::lock_guard admin(impl_->admin);
  impl_->require_open();
  auto made = std::make_unique<Queue::Impl>();
  driver::QueueOptions options;
  options.sq_entries = depth + 1;
  made->ssd = impl_;
  {
    const std::lock_guard lock(impl_->mutex);
    ++impl_->queues;
  }
  made->resets = impl_->resets;
  made->pair = translated([&] { return &impl_->driver->create_queue_pair(options); });
  made->memory = std::make_unique<driver::DmaMemory>(impl_->device->pci(), kSlotBytes * depth);
  made->lists = std::make_unique<driver::PrpLists>(impl_->device->pci(), depth, kSlotBytes);
  made->slots.resize(depth);
  for (std::uint32_t cid = depth; cid-- > 0;) made->free.push_back(static_cast<std::uint16_t>(cid));
  return std::unique_ptr<Queue>(new Queue(std::move(made), *this));
}

Queue::Queue(std::unique_ptr<Impl> impl, const Ssd& owner) : impl_(std::move(impl)), owner_(owner) {}

Queue::~Queue() {
  try {
    impl_->wait_until([this] { return impl_->requests == 0 || impl_->ssd->only_lost_left(); });
  } catch (const std::exception&) {
    // The SSD was closed or reset under us, or lost commands: what was outstanding goes with the queue pair.
  }
}

void Queue::read(std::uint32_t nsid, std::uint64_t lba, void* buffer, std::uint64_t bytes, Done done) {
  impl_->transfer(nvme::NvmOpcode::read, nsid, lba, static_cast<std::byte*>(buffer), bytes,
                  impl_->lba_bytes_of(owner_, nsid), std::move(done));
}

void Queue::write(std::uint32_t nsid, std::uint64_t lba, const void* buffer, std::uint64_t bytes, Done done) {
  impl_->transfer(nvme::NvmOpcode::write, nsid, lba, static_cast<std::byte*>(const_cast<void*>(buffer)), bytes,
                  impl_->lba_bytes_of(owner_, nsid), std::move(done));
}

void Queue::flush(std::uint32_t nsid, Done done) {
  impl_->require_pair();
  const std::uint16_t cid = impl_->take_slot();
  impl_->slots[cid] = {std::make_shared<Impl::Request>(Impl::Request{std::move(done), 1}), nullptr, 0};
  ++impl_->requests;
  nvme::Sqe sqe{};
  sqe.opcode = static_cast<std::uint8_t>(nvme::NvmOpcode::flush);
  sqe.cid = cid;
  sqe.nsid = nsid;
  impl_->submit(sqe);
}

unsigned Queue::poll() { return impl_->poll(); }

void Queue::drain() {
  impl_->wait_until([this] { return impl_->requests == 0; });
}

void Queue::abandon() {
  for (const Impl::Slot& slot : impl_->slots) {
    if (slot.request != nullptr) slot.request->forgotten = true;
  }
  impl_->requests = 0;
}

std::uint32_t Queue::outstanding() const { return impl_->requests; }

}  // namespace flashmob
