#include "initiator/nvme_tcp/nvme_tcp_device.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <utility>

#include "base/check.h"
#include "driver/patience.h"
#include "initiator/nvme_tcp/fabrics_channel.h"
#include "nvme/fabrics.h"
#include "nvme/registers.h"

namespace flashmob::initiator {

using nvme::Status;

namespace {

constexpr std::size_t kDoorbellBytes = std::size_t{65536} * 2 * sizeof(std::uint32_t);
constexpr nvme::Cqe kNoConnection{.dw0 = 0,
                                  .dw1 = 0,
                                  .sqhd = 0,
                                  .sqid = 0,
                                  .cid = 0,
                                  .status_phase = nvme::to_field(Status::transient_transport_error) << 1};

}  // namespace

NvmeTcpDevice::NvmeTcpDevice(const NvmeTcpOptions& options) : options_(completed(options)), doorbells_(kDoorbellBytes) {
  for (unsigned i = 0; i < options_.pump_threads; ++i)
    pumps_.push_back(
        std::make_unique<TcpPump>(space_, static_cast<TcpPump::Events&>(*this), options_.idle_spin_ns, sleepers_));
  {
    const std::lock_guard lock(mutex_);
    try {
      connect();
    } catch (const FabricsError& error) {
      throw ConfigError(error.what() +
                        std::string(error.reached() ? "" : "; check the address and that the target runs there"));
    }
  }
  control_ = std::thread([this] { control_loop(); });
}

NvmeTcpDevice::~NvmeTcpDevice() {
  {
    const std::lock_guard lock(tasks_mutex_);
    stop_ = true;
  }
  tasks_changed_.notify_one();
  control_.join();
  const std::lock_guard lock(mutex_);
  disconnect();
}

std::string NvmeTcpDevice::failure() const {
  const std::lock_guard lock(failure_mutex_);
  return failure_;
}

void NvmeTcpDevice::fail(const std::string& reason) {
  {
    const std::lock_guard lock(failure_mutex_);
    if (!failed_.load(std::memory_order_relaxed)) failure_ = reason;
    failed_.store(true, std::memory_order_release);
  }
  // One connection lost ends the association, and with it all of them. Nothing here waits for the pumps, because a
  // pump may be the caller.
  for (const auto& pump : pumps_) pump->post([pump = pump.get(), reason] { pump->lose_all(reason); });
}

void NvmeTcpDevice::queue_failed(const std::string& reason) { fail(reason); }

// Makes a new association. Throws FabricsError.
void NvmeTcpDevice::connect() {
  {
    const std::lock_guard lock(failure_mutex_);
    failure_.clear();
    failed_.store(false, std::memory_order_release);
  }
  if (options_.secure_channel) psk_ = FabricsChannel(options_).make_key();
  FabricsChannel channel(options_, psk_ ? &*psk_ : nullptr);
  const nvme::Connect fields{.qid = 0,
                             .sqsize = TcpAdminQueue::kEntries - 1,
                             .cattr = nvme::kConnectAttrIndividualDelete,
                             .kato_ms = options_.keep_alive_ms};
  cntlid_ = channel.connect(fields, options_.subsystem_nqn, nvme::kCntlidDynamic);
  // The doorbells are ours, and so is their stride.
  cap_ = channel.property(nvme::kRegCap, true) & ~nvme::encode_cap({.dstrd = 0xF});
  version_ = static_cast<std::uint32_t>(channel.property(nvme::kRegVs, false));
  const TcpStreamLimits limits{.qid = 0,
                               .entries = TcpAdminQueue::kEntries,
                               .digests = channel.digests(),
                               .max_h2c_bytes = channel.max_h2c_bytes(),
                               .cpda = channel.cpda(),
                               // What every controller takes on the admin queue (3.3.2.1).
                               .in_capsule_bytes = 8192};
  const auto keep = [this](const nvme::Sqe& sqe) {
    const std::lock_guard lock(tasks_mutex_);
    tasks_.push_back({sqe, generation_.load()});
    tasks_changed_.notify_one();
  };
  auto queue = std::make_unique<TcpAdminQueue>(channel.release(), limits, sizes_, options_.keep_alive_ms, keep);
  admin_pump().run([&] { admin_pump().add(std::move(queue)); });
  sizes_.forget_all();
  identified_ = false;
  used_ = false;
  connected_ = true;
}

// The host's queues are no more: nothing touches its rings or buffers when this returns.
void NvmeTcpDevice::take_io_queues() {
  ++generation_;
  for (const auto& [qid, cqid] : submission_queues_) {
    TcpPump& pump = *completion_queues_.at(cqid).pump;
    pump.run([&, id = qid] { parked_.push_back(pump.remove(id)); });
  }
  submission_queues_.clear();
  completion_queues_.clear();
}

void NvmeTcpDevice::disconnect() {
  take_io_queues();
  admin_pump().run([&] { admin_pump().remove(0); });
  parked_.clear();
  connected_ = false;
}

void NvmeTcpDevice::enable(std::uint32_t cc) {
  try {
    if (!connected_ || used_ || failed_.load()) {
      disconnect();
      connect();
    }
  } catch (const FabricsError& error) {
    return fail(error.what());
  }
  used_ = true;
  const nvme::Aqa aqa = nvme::decode_aqa(aqa_);
  std::uint32_t* const words = doorbells();
  for (int i = 0; i < 2; ++i) std::atomic_ref<std::uint32_t>(words[i]).store(0);
  const SubmissionRing ring(asq_, aqa.asqs + 1u, words);
  const auto completions = std::make_shared<CompletionRing>(acq_, aqa.acqs + 1u, words + 1,
                                                            CompletionRing::Interrupt{.enabled = true, .vector = 0});
  admin_pump().run([&] {
    if (TcpQueue* queue = admin_pump().find(0)) queue->attach(ring, completions);
  });
  property_set(nvme::kRegCc, cc);
}

// The admin connection stays, so that the host can watch the controller become disabled; the next enable makes a new
// association (Base 2.0c, 3.7.2). I/O connections are closed only after the controller knows why.
void NvmeTcpDevice::reset_controller(std::uint32_t cc) {
  take_io_queues();
  admin_pump().run([&] {
    if (TcpQueue* queue = admin_pump().find(0)) queue->attach(std::nullopt, nullptr);
  });
  if (!failed_.load()) property_set(nvme::kRegCc, cc);
  if (failed_.load()) disconnect();
  parked_.clear();
}

std::optional<NvmeTcpDevice::OwnResult> NvmeTcpDevice::run_own(std::uint16_t qid, TcpPump& pump, const nvme::Sqe& sqe,
                                                               std::size_t bytes) {
  struct Shared {
    std::promise<nvme::Cqe> entry;
    std::vector<std::byte> data;
  };
  const auto shared = std::make_shared<Shared>();  // the pump may answer after we have stopped waiting
  shared->data.resize(bytes);
  pump.post([shared, &pump, qid, sqe, bytes] {
    const auto done = [shared](const nvme::Cqe& entry) { shared->entry.set_value(entry); };
    TcpQueue* queue = pump.find(qid);
    if (queue == nullptr) return done(kNoConnection);
    queue->run_own(sqe, {bytes == 0 ? DataWay::none : DataWay::from_device, bytes}, shared->data.data(), done);
  });
  auto answer = shared->entry.get_future();
  driver::Patience patience(std::chrono::milliseconds(options_.timeout_ms), options_.is_hurried);
  for (int left_ms = 1; answer.wait_for(std::chrono::milliseconds(left_ms)) != std::future_status::ready;) {
    left_ms = patience.next_ms();
    if (left_ms == 0) return std::nullopt;
  }
  OwnResult result{answer.get(), std::move(shared->data)};
  const Status status = nvme::status_of(static_cast<std::uint16_t>(result.entry.status_phase >> 1));
  if (status == Status::transient_transport_error) return std::nullopt;
  return result;
}

std::optional<NvmeTcpDevice::OwnResult> NvmeTcpDevice::run_admin(const nvme::Sqe& sqe, std::size_t bytes) {
  if (!connected_ || failed_.load()) return std::nullopt;
  auto result = run_own(0, admin_pump(), sqe, bytes);
  if (!result) fail("the controller does not answer");
  return result;
}

// 0 where there is no such property, or nobody to ask.
std::uint64_t NvmeTcpDevice::property_get(std::uint32_t offset, bool eight_bytes) {
  nvme::Sqe sqe = nvme::fabrics_sqe(nvme::FabricsType::property_get);
  nvme::encode_property({.eight_bytes = eight_bytes, .offset = offset, .value = 0}, sqe);
  const auto result = run_admin(sqe, 0);
  if (!result || result->entry.status_phase >> 1 != 0) return 0;
  return eight_bytes ? result->entry.dw0 | (std::uint64_t{result->entry.dw1} << 32) : result->entry.dw0;
}

void NvmeTcpDevice::property_set(std::uint32_t offset, std::uint32_t value) {
  nvme::Sqe sqe = nvme::fabrics_sqe(nvme::FabricsType::property_set);
  nvme::encode_property({.eight_bytes = false, .offset = offset, .value = value}, sqe);
  run_admin(sqe, 0);
}

std::uint32_t NvmeTcpDevice::controller_status() {
  const auto status = static_cast<std::uint32_t>(property_get(nvme::kRegCsts, false));
  if (!failed_.load()) return status;
  // Disabled is what a controller without a connection is; enabled, it has failed.
  return nvme::decode_cc(cc_).en ? nvme::encode_csts({.rdy = true, .cfs = true}) : 0;
}

std::uint64_t NvmeTcpDevice::read64(std::uint32_t offset) {
  const std::lock_guard lock(mutex_);
  switch (offset) {
    case nvme::kRegCap:
      return cap_;
    case nvme::kRegAsq:
      return asq_;
    case nvme::kRegAcq:
      return acq_;
    default:
      return property_get(offset, true);
  }
}

std::uint32_t NvmeTcpDevice::read32(std::uint32_t offset) {
  const std::lock_guard lock(mutex_);
  switch (offset) {
    case nvme::kRegCap:
      return static_cast<std::uint32_t>(cap_);
    case nvme::kRegCap + 4:
      return static_cast<std::uint32_t>(cap_ >> 32);
    case nvme::kRegVs:
      return version_;
    case nvme::kRegCc:
      return cc_;
    case nvme::kRegCsts:
      return controller_status();
    case nvme::kRegAqa:
      return aqa_;
    case nvme::kRegIntms:
    case nvme::kRegIntmc:
      return 0;
    default:
      return static_cast<std::uint32_t>(property_get(offset, false));
  }
}

void NvmeTcpDevice::write64(std::uint32_t offset, std::uint64_t value) {
  const std::lock_guard lock(mutex_);
  constexpr std::uint64_t kPageMask = 4095;
  if (offset == nvme::kRegAsq) asq_ = value & ~kPageMask;
  if (offset == nvme::kRegAcq) acq_ = value & ~kPageMask;
}

void NvmeTcpDevice::write32(std::uint32_t offset, std::uint32_t value) {
  const std::lock_guard lock(mutex_);
  if (offset == nvme::kRegAqa) aqa_ = value;
  if (offset == nvme::kRegNssr) property_set(offset, value);
  if (offset != nvme::kRegCc) return;
  const nvme::Cc before = nvme::decode_cc(std::exchange(cc_, value));
  const nvme::Cc after = nvme::decode_cc(value);
  if (!before.en && after.en) return enable(value);
  if (before.en && !after.en) return reset_controller(value);
  // The controller may close I/O connections as it shuts down, which then is no failure.
  if (before.shn == nvme::kCcShnNone && after.shn != nvme::kCcShnNone) take_io_queues();
  property_set(nvme::kRegCc, value);
}

std::uint32_t* NvmeTcpDevice::doorbells() { return reinterpret_cast<std::uint32_t*>(doorbells_.data()); }

void NvmeTcpDevice::wake() {
  for (const auto& pump : pumps_) pump->wake();
}

void NvmeTcpDevice::dma_map(std::uint64_t iova, void* host, std::size_t bytes) { space_.map(iova, bytes, host); }

void NvmeTcpDevice::dma_unmap(std::uint64_t iova, std::size_t bytes) {
  // Unmapping what was never mapped is a mistake of code in this very process.
  FLASHMOB_CHECK(space_.unmap(iova, bytes));
}

void NvmeTcpDevice::set_interrupt(std::uint16_t vector, std::function<void()> handler) {
  vectors_.set(vector, std::move(handler));
}

}  // namespace flashmob::initiator
