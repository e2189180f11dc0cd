#include "stand_in/gpu.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iterator>
#include <utility>

namespace flashmob::gpu::stand_in {
namespace {

constexpr std::uintptr_t kPage = 4096;
// Between two looks at streams and at callers.
constexpr std::uint64_t kStepNs = 500;
constexpr int kCallersTurns = 4;
// Steps after which those who wait look whether they have waited for too long.
constexpr std::uint64_t kLongWait = 256;
// A host thread may well wait for a kernel for long: it waits for SSDs.
constexpr std::uint64_t kStreamPatience = 50;
constexpr std::uint64_t kClockStartNs = 1'700'000'000'000'000'000;  // as a GPU's clock, which counts from 1970

std::uint32_t whole_warps(std::uint32_t threads) {
  return (threads + simt::kWarpLanes - 1) / simt::kWarpLanes * simt::kWarpLanes;
}

}  // namespace

std::uint64_t MachineTime::clock_ns() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return kClockStartNs +
         static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

Gpu& Gpu::get() {
  static Gpu gpu;
  return gpu;
}

Gpu::Gpu() {
  reset({});
  thread_ = std::thread([this] { run(); });
}

Gpu::~Gpu() {
  {
    const Lock lock(*this);
    ends_ = true;
    work_.notify_all();
  }
  thread_.join();
}

Gpu::Lock::Lock(Gpu& gpu) : gpu_(gpu) {
  gpu_.callers_.fetch_add(1);
  gpu_.asked_.fetch_add(1);
  lock_ = std::unique_lock(gpu_.mutex_);
  gpu_.served_.fetch_add(1);
}

Gpu::Lock::~Lock() {
  if (gpu_.model_.hides_device_memory && !gpu_.has_work()) gpu_.show_device(false);
  gpu_.callers_.fetch_sub(1);
}

// --- Controls ---

void Gpu::reset(const Model& model) {
  const Lock lock(*this);
  show_device(true);
  model_ = model;
  queues_.clear();
  active_.clear();
  // Kernels are ended in the middle of what they do; who waits for them would wait for ever.
  fibres_ = std::make_unique<simt::FibreDevice>(
      time_, simt::FibreOptions{.schedule = simt::Schedule::timed, .patience_ns = UINT64_MAX});
  for (Stream* const stream : streams_) delete stream;
  streams_.clear();
  streams_made_ = 0;
  room_.assign(model.multiprocessors, {model.threads_each, model.registers_each, model.shared_bytes_each, 32});
  loaded_.clear();
  local_bytes_ = 0;
  flags = 0;
  stack_bytes = 1024;
  error_ = cudaSuccess;
  findings_.clear();
}

std::string Gpu::take_findings() {
  const Lock lock(*this);
  return std::exchange(findings_, {});
}

std::size_t Gpu::ranges_held() {
  const Lock lock(*this);
  return registered.size();
}

std::size_t Gpu::allocations_held() {
  const Lock lock(*this);
  return pinned.size() + device.size();
}

bool Gpu::is_device_memory(const void* data) {
  const Lock lock(*this);
  return meets(device, data, 1);
}

void Gpu::break_device() {
  const Lock lock(*this);
  fail("the test has broken the device");
  findings_.clear();
}

void Gpu::forget_memory() {
  const Lock lock(*this);
  show_device(true);
  for (const auto* held : {&pinned, &device})
    for (const auto& [start, bytes] : *held) free_block(start, bytes);
  pinned.clear();
  device.clear();
  registered.clear();
}

void Gpu::show_device(bool shown) {
  if (shows_device_ == shown) return;
  shows_device_ = shown;
  for (const auto& [start, bytes] : device) show_block(start, bytes);
}

// Whole pages: a block has them for itself.
void Gpu::show_block(std::uintptr_t data, std::size_t bytes) const {
  const std::uintptr_t first = data / kPage * kPage;
  const int access = shows_device_ ? PROT_READ | PROT_WRITE : PROT_NONE;
  if (mprotect(reinterpret_cast<void*>(first), data + bytes - first, access) != 0) std::abort();
}

void Gpu::free_block(std::uintptr_t data, std::size_t bytes) {
  std::free(reinterpret_cast<void*>(data - (bytes < kOwnPieceBytes ? kInPieceBytes : 0)));
}

void Gpu::find(std::string sentence) { findings_ += std::move(sentence) + "\n"; }

// --- The machine ---

void Gpu::run() {
  std::unique_lock lock(mutex_);
  while (!ends_) {
    if (!has_work()) {
      work_.wait(lock);
      continue;
    }
    step();
    wake_waiting();
    // Whoever has asked by now has a turn before the next step: a thread that sleeps for the lock would never get it
    // from one that lets it go for a moment.
    const std::uint64_t asked = asked_.load();
    lock.unlock();
    while (served_.load() < asked) std::this_thread::yield();
    // Callers come first, but those that ask again and again must not keep the machine from what they ask for.
    for (int turns = 0; turns < kCallersTurns && callers_.load() != 0; ++turns) std::this_thread::yield();
    lock.lock();
  }
  show_device(true);
  active_.clear();
  fibres_.reset();
}

// Those who wait for something of the machine ask again when it may have come.
void Gpu::wake_waiting() {
  if (!changed_ && has_work() && ++steps_quiet_ < kLongWait) return;
  changed_ = false;
  steps_quiet_ = 0;
  ++wakings_;
  asked_.fetch_add(std::exchange(waiting_, 0));
  stepped_.notify_all();
}

void Gpu::step() {
  show_device(true);
  for (bool any = true; any;) {
    any = false;
    for (auto& [connection, queue] : queues_) {
      if (queue.empty() || !can_begin(*queue.front())) continue;
      std::unique_ptr<Op> first = std::move(queue.front());
      queue.pop_front();
      begin(std::move(first));
      any = true;
    }
  }
  try {
    fibres_->pass(kStepNs);
  } catch (const std::exception& thrown) {
    fail(thrown.what());
  }
  std::erase_if(active_, [this](const std::unique_ptr<Op>& op) {
    if (!has_ended(*op)) return false;
    if (op->work) op->work();
    release(*op);
    changed_ = true;
    return true;
  });
}

bool Gpu::can_begin(const Op& op) const {
  const auto stands_before = [&op, this](const Op& other) {
    if (other.number >= op.number) return false;
    if (other.stream == op.stream) return true;
    const bool is_ordered = other.stream->blocking && op.stream->blocking;
    return is_ordered && (other.stream == &legacy_ || op.stream == &legacy_);
  };
  for (const auto& other : active_)
    if (stands_before(*other)) return false;
  for (const auto& [connection, queue] : queues_)
    for (const auto& other : queue)
      if (stands_before(*other)) return false;
  return true;
}

void Gpu::begin(std::unique_ptr<Op> op) {
  if (op->event != nullptr) {
    op->event->reached = std::max(op->event->reached, op->number);
    changed_ = true;
    return;
  }
  if (op->start)
    op->kernel = op->start(*fibres_);
  else
    op->due_ns = time_.now_ns() + model_.late_ns;
  active_.push_back(std::move(op));
}

bool Gpu::has_ended(const Op& op) const {
  if (op.entry != nullptr) return fibres_->finished(op.kernel);
  return op.due_ns <= fibres_->now_ns() && (!model_.late_until_awaited || awaited_.contains(op.stream));
}

void Gpu::release(const Op& op) {
  for (const Claim& claim : op.claims) {
    Room& room = room_[claim.multiprocessor];
    room.threads += claim.room.threads;
    room.registers += claim.room.registers;
    room.shared_bytes += claim.room.shared_bytes;
    room.blocks += claim.room.blocks;
  }
}

void Gpu::fail(const std::string& why) {
  find("a kernel has failed: " + why);
  error_ = cudaErrorLaunchFailure;
  changed_ = true;
  for (const auto& op : active_) release(*op);
  active_.clear();
  queues_.clear();
}

bool Gpu::kernels_run() const {
  return std::any_of(active_.begin(), active_.end(), [](const auto& op) { return op->entry != nullptr; });
}

bool Gpu::has_work() const {
  return !active_.empty() ||
         std::any_of(queues_.begin(), queues_.end(), [](const auto& queue) { return !queue.second.empty(); });
}

std::string Gpu::kernels_named() const {
  std::string names;
  for (const auto& op : active_)
    if (op->entry != nullptr) names += (names.empty() ? "" : ", ") + std::string(op->entry->name);
  return names;
}

// --- Streams ---

Stream* Gpu::make_stream(bool blocking) {
  auto* const stream = new Stream;
  stream->blocking = blocking;
  stream->connection = streams_made_++ % model_.connections;
  streams_.insert(stream);
  return stream;
}

void Gpu::drop_stream(Stream* stream) {
  // What is still in it ends by itself; where a stream is reused at the same address meanwhile, nobody can tell.
  if (is_idle(stream) && streams_.erase(stream) != 0) delete stream;
}

Gpu::Op& Gpu::put(Stream* stream) {
  auto op = std::make_unique<Op>();
  op->stream = stream;
  op->number = ++ops_;
  Op& made = *op;
  queues_[stream->connection].push_back(std::move(op));
  work_.notify_all();
  return made;
}

void Gpu::enqueue(Stream* stream, std::function<void()> work) { put(stream).work = std::move(work); }

void Gpu::record(Stream* stream, Event* event) {
  Op& op = put(stream);
  op.event = event;
  event->recorded = op.number;
}

cudaError_t Gpu::launch(Stream* stream, const Entry& entry, const simt::Shape& shape, void** arguments) {
  std::vector<Claim> claims = claim(entry, shape);
  if (claims.empty()) return cudaErrorLaunchOutOfResources;
  Op& op = put(stream);
  op.entry = &entry;
  op.start = entry.bind(shape, arguments);
  op.claims = std::move(claims);
  return cudaSuccess;
}

bool Gpu::is_idle(const Stream* stream) const {
  const auto its = [stream](const auto& op) { return op->stream == stream; };
  if (std::any_of(active_.begin(), active_.end(), its)) return false;
  return std::none_of(queues_.begin(), queues_.end(),
                      [&](const auto& queue) { return std::any_of(queue.second.begin(), queue.second.end(), its); });
}

// --- Room ---

Gpu::Room Gpu::need_of(const Entry& entry, const simt::Shape& shape) const {
  const std::uint32_t threads = whole_warps(shape.block_threads);
  return {threads, threads * entry.registers, shape.shared_bytes + 1024, 1};
}

std::uint32_t Gpu::blocks_each(const Entry& entry, const simt::Shape& shape) const {
  const Room need = need_of(entry, shape);
  return std::min({model_.threads_each / need.threads, model_.registers_each / need.registers,
                   model_.shared_bytes_each / need.shared_bytes, 32u});
}

// Blocks that find no room take turns on a GPU. Here they all run, but not one must find any, and all of those that
// others wait for.
std::vector<Gpu::Claim> Gpu::claim(const Entry& entry, const simt::Shape& shape) {
  const Room need = need_of(entry, shape);
  std::vector<Room> left = room_;
  std::vector<Claim> claims;
  std::size_t full = 0;
  for (std::size_t at = 0; claims.size() < shape.blocks && full < left.size(); at = (at + 1) % left.size()) {
    Room& room = left[at];
    if (room.threads < need.threads || room.registers < need.registers || room.shared_bytes < need.shared_bytes ||
        room.blocks == 0) {
      ++full;
      continue;
    }
    full = 0;
    room = {room.threads - need.threads, room.registers - need.registers, room.shared_bytes - need.shared_bytes,
            room.blocks - 1};
    claims.push_back({at, need});
  }
  if (entry.waits_for_others && claims.size() < shape.blocks) return {};
  room_ = std::move(left);
  return claims;
}

// --- Waiting ---

cudaError_t Gpu::wait_until(Lock& lock, const std::function<bool()>& done, std::uint64_t patience_ns,
                            const std::string& call) {
  // Whoever waits leaves the machine to itself.
  const std::uint64_t start_ns = time_.now_ns();
  cudaError_t result = cudaSuccess;
  callers_.fetch_sub(1);
  while (!done()) {
    if (error_ != cudaSuccess) {
      result = error_;
      break;
    }
    if (time_.now_ns() - start_ns > patience_ns || !has_work()) {
      find(call + ", which would never return: " + (has_work() ? kernels_named() : "nothing") + " runs");
      result = cudaErrorLaunchTimeout;
      break;
    }
    const std::uint64_t waking = wakings_;
    ++waiting_;
    stepped_.wait(lock.lock_, [&] { return wakings_ != waking; });
    served_.fetch_add(1);
  }
  callers_.fetch_add(1);
  return result;
}

cudaError_t Gpu::wait_for(Lock& lock, const Stream* stream, const char* call) {
  const auto awaited = awaited_.insert(stream);
  const cudaError_t result =
      wait_until(lock, [&] { return is_idle(stream); }, model_.patience_ns * kStreamPatience, call);
  awaited_.erase(awaited);
  return result;
}

cudaError_t Gpu::wait_for(Lock& lock, const Event* event, const char* call) {
  return wait_until(
      lock, [&] { return event->reached >= event->recorded; }, model_.patience_ns * kStreamPatience, call);
}

cudaError_t Gpu::wait_for_kernels(Lock& lock, const std::string& call) {
  return wait_until(
      lock, [this] { return !kernels_run(); }, model_.patience_ns, call + " waits for all kernels that run");
}

cudaError_t Gpu::load(Lock& lock, const Entry& entry) {
  if (!model_.loads_lazily || !loaded_.insert(&entry).second) return cudaSuccess;
  return wait_for_kernels(lock, std::string("the loading of ") + entry.name);
}

cudaError_t Gpu::fit_local_memory(Lock& lock, const Entry& entry) {
  const std::size_t need = std::max<std::size_t>(entry.local_bytes, stack_bytes);
  if (need > local_bytes_) {
    const cudaError_t waited =
        local_bytes_ == 0 ? cudaSuccess : wait_for_kernels(lock, std::string("more local memory for ") + entry.name);
    local_bytes_ = need;
    return waited;
  }
  // Without the flag it is given back after the launch.
  if ((flags & cudaDeviceLmemResizeToMax) == 0) local_bytes_ = stack_bytes;
  return cudaSuccess;
}

// --- Memory ---

std::size_t Gpu::registered_bytes() const {
  std::size_t sum = 0;
  for (const auto& [start, bytes] : registered) sum += bytes;
  return sum;
}

bool Gpu::meets(const std::map<std::uintptr_t, std::size_t>& map, const void* data, std::size_t bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(data);
  const auto after = map.lower_bound(first + bytes);
  if (after == map.begin()) return false;
  const auto& [start, size] = *std::prev(after);
  return start + size > first;
}

cudaMemoryType Gpu::type_of(const void* data) const {
  if (meets(device, data, 1)) return cudaMemoryTypeDevice;
  return meets(pinned, data, 1) || meets(registered, data, 1) ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
}

}  // namespace flashmob::gpu::stand_in
