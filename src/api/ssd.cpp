// flashmob::Ssd and flashmob::Queue: an emulated SSD in this process behind the in-process door.
#include "flashmob/ssd.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

#include "api/device.h"
#include "driver/block_queue.h"
#include "driver/key_value_queue.h"
#include "driver/namespaces.h"
#include "driver/nvme_driver.h"
#include "nvme/kv.h"
#include "nvme/opcode.h"

namespace flashmob {
namespace {

// Requests are bounced through slots of this size; larger ones become several commands.
constexpr std::uint64_t kSlotBytes = 128 * 1024;
// As the driver's for admin commands.
constexpr std::uint64_t kTimeoutNs = 10'000'000'000;

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

// The SSDs whose queues' calls this thread is in: what these call back may call others.
struct CallFrame {
  const void* ssd;
  const CallFrame* outer;
};
thread_local const CallFrame* innermost_call = nullptr;

}  // namespace

struct Ssd::Impl {
  Clock clock = Clock::real();
  // The driver is for one thread at a time, and may wait long for the device. Taken before `mutex`.
  std::recursive_mutex admin;
  std::map<std::uint32_t, driver::BlockNamespace> namespaces;  // by nsid; nobody but us could change one. admin held
  std::unique_ptr<driver::KeyValueQueue> keys;  // made when it is asked for first. admin held
  std::recursive_mutex mutex;  // of what follows; never held while the device is waited for
  std::unique_ptr<api::Device> device;
  std::unique_ptr<driver::NvmeDriver> driver;
  std::uint32_t max_queues = 0;
  std::uint32_t max_transfer_bytes = 0;
  std::uint32_t queues = 0;  // alive; their DMA memory needs the device
  std::vector<const std::atomic<std::uint32_t>*> calls;  // of each of them: how many it is in
  std::mutex stop_mutex;  // before `admin`: one thread at a time has all calls end
  std::atomic<bool> stopping = false;  // calls of queues and of key_value() end, and none begins
  std::atomic<bool> closed = false;
  std::atomic<std::uint64_t> timeout_ns = kTimeoutNs;
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
  // `admin`, for one that may have to wait long for other threads' calls.
  std::unique_lock<std::recursive_mutex> take_turn(const std::function<bool()>& interrupted) {
    std::unique_lock lock(admin, std::defer_lock);
    if (!interrupted) {
      lock.lock();
      return lock;
    }
    constexpr std::uint32_t kBriefTries = 1000, kTriesPerQuestion = 200;
    for (std::uint32_t tries = 1; !lock.try_lock(); ++tries) {
      if (tries <= kBriefTries) {
        std::this_thread::yield();
        continue;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      if (tries % kTriesPerQuestion == 0 && interrupted())
        throw std::runtime_error("the wait for another thread's call was interrupted");
    }
    return lock;
  }
  // While it lives, no thread is in a call of a queue: what these use is about to go.
  class NoCalls {
   public:
    explicit NoCalls(Impl& impl) : impl_(impl), lock_(impl.stop_mutex, std::defer_lock) {
      for (const CallFrame* frame = innermost_call; frame != nullptr; frame = frame->outer)
        if (frame->ssd == &impl) throw std::runtime_error("an SSD is not reset or closed by what its queue calls");
      lock_.lock();
      impl_.stopping = true;
      while (impl_.is_in_call()) std::this_thread::yield();
    }
    ~NoCalls() { impl_.stopping = false; }
    NoCalls(const NoCalls&) = delete;
    NoCalls& operator=(const NoCalls&) = delete;

   private:
    Impl& impl_;
    std::unique_lock<std::mutex> lock_;
  };
  bool is_in_call() {
    const std::lock_guard lock(mutex);
    return std::ranges::any_of(calls, [](const auto* of_queue) { return of_queue->load() != 0; });
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
  driver::BlockNamespace namespace_of(std::uint32_t nsid) {
    const std::lock_guard admin_lock(admin);
    require_open();
    const auto known = namespaces.find(nsid);
    if (known != namespaces.end()) return known->second;
    const auto found = translated([&] { return driver::identify_namespace(*driver, nsid); });
    if (found.blocks == 0) throw std::runtime_error("namespace " + std::to_string(nsid) + " is not active");
    return namespaces.emplace(nsid, found).first->second;
  }
};

Ssd::Ssd(const DeviceConfig& config) : impl_(std::make_shared<Impl>()) {
  impl_->device = std::make_unique<api::Device>(config, impl_->clock);
  impl_->device->start();
  const driver::Waiter waiter{[] { std::this_thread::yield(); }, [clock = impl_->clock] { return clock.now_ns(); }};
  impl_->driver = std::make_unique<driver::NvmeDriver>(impl_->device->pci(), waiter);
  impl_->driver->enable();
  impl_->max_transfer_bytes = config.controller.max_transfer_bytes;
  impl_->max_queues = std::min(config.controller.max_queue_pairs, 1024u);
  impl_->driver->request_queues(impl_->max_queues);
}

Ssd::~Ssd() { close(); }

void Ssd::close() {
  const Impl::NoCalls none(*impl_);
  const std::lock_guard admin(impl_->admin);
  if (impl_->closed.exchange(true)) return;
  // A controller that is told to lose commands, or that died of a fault, must not keep its owner.
  impl_->device->engine().faults().set({});
  impl_->keys.reset();
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
  const Impl::NoCalls none(*impl_);
  const std::lock_guard admin(impl_->admin);
  impl_->require_open();
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
  return static_cast<std::uint32_t>(translated([&] { return driver::active_namespaces(*impl_->driver); }).size());
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
  return static_cast<std::uint32_t>(impl_->namespace_of(nsid).lba_bytes());
}

std::uint64_t Ssd::namespace_bytes(std::uint32_t nsid) const { return impl_->namespace_of(nsid).bytes(); }

namespace {

driver::KeyValueQueue::Answer run(driver::KeyValueQueue& queue, const KeyValueRequest& request, std::string& data) {
  using Kind = KeyValueRequest::Kind;
  using nvme::KvOpcode;
  constexpr std::array kOpcodes = {KvOpcode::store, KvOpcode::retrieve, KvOpcode::delete_key, KvOpcode::exist,
                                   KvOpcode::list};
  driver::KeyValueQueue::Command command{.opcode = kOpcodes.at(static_cast<std::size_t>(request.kind)),
                                         .nsid = request.nsid,
                                         .key = std::as_bytes(std::span(request.key))};
  if (request.kind == Kind::store) {
    command.options = static_cast<std::uint8_t>((request.must_exist ? nvme::kStoreMustExist : 0) |
                                                (request.must_not_exist ? nvme::kStoreMustNotExist : 0));
    return queue.send(command, std::as_bytes(std::span(request.value)));
  }
  const bool reads = request.kind == Kind::retrieve || request.kind == Kind::list;
  data.resize(reads ? request.buffer_bytes : 0);
  return queue.receive(command, std::as_writable_bytes(std::span(data)));
}

}  // namespace

KeyValueAnswer Ssd::key_value(const KeyValueRequest& request, const std::function<bool()>& interrupted) {
  if (request.key.size() > 255) throw std::length_error("a key of more than 255 bytes cannot be sent");
  const std::unique_lock<std::recursive_mutex> admin = impl_->take_turn(interrupted);
  impl_->require_open();
  KeyValueAnswer answer;
  try {
    translated([&] {
      if (impl_->keys != nullptr && impl_->keys->is_gone()) impl_->keys.reset();
      if (impl_->keys == nullptr)
        impl_->keys =
            std::make_unique<driver::KeyValueQueue>(*impl_->driver, impl_->max_transfer_bytes, impl_->stopping);
      impl_->keys->timeout_ns = impl_->timeout_ns;
      impl_->keys->interrupted = interrupted;
      const auto done = run(*impl_->keys, request, answer.data);
      answer.status_field = done.status_field;
      answer.value_bytes = request.kind == KeyValueRequest::Kind::retrieve ? done.result : 0;
    });
  } catch (const std::length_error&) {
    throw;
  } catch (...) {
    // What is still under way is not to meet the next command's buffer. Whoever resets or closes sees to that, too,
    // and waits for this thread.
    if (!impl_->stopping) impl_->keys.reset();
    throw;
  }
  if (answer.status_field != 0) answer.data.clear();
  if (request.kind == KeyValueRequest::Kind::retrieve)
    answer.data.resize(std::min<std::size_t>(answer.data.size(), answer.value_bytes));
  return answer;
}

struct Queue::Impl {
  std::shared_ptr<Ssd::Impl> ssd;
  std::unique_ptr<driver::BlockQueue> blocks;
  std::map<std::uint32_t, driver::BlockNamespace> namespaces;  // by nsid, looked up once
  std::uint32_t counted = 0;                                   // commands that are in ssd->outstanding
  std::atomic<std::uint32_t> calls = 0;  // that its thread is in, one within the other

  ~Impl() {
    const std::lock_guard admin(ssd->admin);
    if (blocks != nullptr && !is_gone()) {
      count();
      ssd->write_off(counted);
    }
    blocks.reset();
    const std::lock_guard lock(ssd->mutex);
    std::erase(ssd->calls, &calls);
    --ssd->queues;
    ssd->free_if_unused();
  }

  // The pair goes with the SSD, and with a reset.
  bool is_gone() const { return ssd->closed || blocks->is_gone(); }
  void require_pair() const {
    ssd->require_open();
    if (ssd->stopping || blocks->is_gone()) throw std::runtime_error("the queue is gone: the SSD was reset");
  }

  // A thread is in a call. Whoever has set `stopping` sees that, or require_pair() sees `stopping`.
  class Call {
   public:
    explicit Call(Impl& impl) : impl_(impl), frame_{impl.ssd.get(), innermost_call} {
      impl_.calls.store(impl_.calls.load(std::memory_order_relaxed) + 1);
      innermost_call = &frame_;
    }
    ~Call() {
      innermost_call = frame_.outer;
      impl_.calls.store(impl_.calls.load(std::memory_order_relaxed) - 1, std::memory_order_release);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    Impl& impl_;
    CallFrame frame_;
  };

  // Runs a step of the queue's; what it has started and ended counts for the SSD.
  template <class F>
  decltype(auto) run(F&& step) {
    struct Counted {
      Impl& impl;
      ~Counted() { impl.count(); }
    };
    const Call call(*this);
    require_pair();
    const Counted counted_after{*this};
    return translated(std::forward<F>(step));
  }
  void count() {
    const std::uint32_t now = blocks->outstanding();
    if (now == counted || is_gone()) return;
    ssd->outstanding += std::uint64_t{now} - counted;
    counted = now;
  }

  void idle(std::uint64_t silent_ns) {
    require_pair();
    count();
    blocks->timeout_ns = ssd->timeout_ns;
    blocks->default_idle(silent_ns);
  }

  const driver::BlockNamespace& namespace_of(std::uint32_t nsid, std::uint64_t bytes) {
    auto at = namespaces.find(nsid);
    if (at == namespaces.end()) at = namespaces.emplace(nsid, ssd->namespace_of(nsid)).first;
    const driver::BlockNamespace& ns = at->second;
    if (bytes == 0 || bytes % ns.lba_bytes() != 0)
      throw std::invalid_argument("buffer of " + std::to_string(bytes) + " bytes is not a multiple of the LBA size, " +
                                  std::to_string(ns.lba_bytes()));
    return ns;
  }
};

std::unique_ptr<Queue> Ssd::queue(std::uint32_t depth) {
  if (depth < 1 || depth > 1024) throw ConfigError("queue depth must be 1...1024");
  const std::lock_guard admin(impl_->admin);
  impl_->require_open();
  auto made = std::make_unique<Queue::Impl>();
  made->ssd = impl_;
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->calls.push_back(&made->calls);
    ++impl_->queues;
  }
  const auto idle = [queue = made.get()](std::uint64_t silent_ns) { queue->idle(silent_ns); };
  made->blocks = translated([&] {
    return std::make_unique<driver::BlockQueue>(
        *impl_->driver, driver::BlockQueue::Options{.slots = depth, .slot_bytes = kSlotBytes, .idle = idle});
  });
  return std::unique_ptr<Queue>(new Queue(std::move(made)));
}

Queue::Queue(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Queue::~Queue() {
  try {
    impl_->run([this] {
      impl_->blocks->wait_until([this] { return impl_->blocks->requests() == 0 || impl_->ssd->only_lost_left(); });
    });
  } catch (const std::exception&) {
    // The SSD was closed or reset under us, or lost commands: what was outstanding goes with the queue pair.
  }
}

void Queue::read(std::uint32_t nsid, std::uint64_t lba, void* buffer, std::uint64_t bytes, Done done) {
  impl_->run([&] {
    impl_->blocks->read(impl_->namespace_of(nsid, bytes), lba, static_cast<std::byte*>(buffer), bytes, std::move(done));
  });
}

void Queue::write(std::uint32_t nsid, std::uint64_t lba, const void* buffer, std::uint64_t bytes, Done done) {
  impl_->run([&] {
    impl_->blocks->write(impl_->namespace_of(nsid, bytes), lba, static_cast<const std::byte*>(buffer), bytes,
                         std::move(done));
  });
}

void Queue::flush(std::uint32_t nsid, Done done) {
  impl_->run([&] { impl_->blocks->flush(nsid, std::move(done)); });
}

unsigned Queue::poll() {
  return impl_->run([this] { return impl_->blocks->poll(); });
}

void Queue::drain() {
  impl_->run([this] { impl_->blocks->wait_until([this] { return impl_->blocks->requests() == 0; }); });
}

void Queue::abandon() { impl_->blocks->abandon(); }

std::uint32_t Queue::outstanding() const { return impl_->blocks->requests(); }

}  // namespace flashmob
