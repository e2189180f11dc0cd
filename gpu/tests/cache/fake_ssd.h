// SSDs that are nothing but a table of commands, for many seeds of the cache's protocol: every command takes a time
// drawn from the seed, overtakes others, and may fail or get lost. They check what a cache must never do: have two
// commands for the same blocks in flight if one of them writes, or change data while they are being written.
//
// FakeDevices is the World of a FibreDevice, or is passed on by a thread of its own; any thread may submit.
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "base/rng.h"
#include "flashmob/gpu/cache.h"
#include "flashmob/gpu/simt/host_lane.h"
#include "flashmob/gpu/simt/world.h"
#include "flashmob/gpu/status.h"
#include "simt/weak_memory.h"

namespace flashmob::gpu::test {

struct FakeNamespace {
  std::uint32_t lba_shift = 9;
  std::uint64_t blocks = 0;
};

struct FakeOptions {
  std::uint64_t seed = 1;
  std::uint32_t ssds = 1;
  std::uint32_t namespaces = 1;
  std::uint64_t blocks = 64;  // of each namespace
  std::uint64_t latency_ns = 5'000;
  std::uint32_t read_error_one_in = 0;
  std::uint32_t write_error_one_in = 0;
  std::uint32_t refuse_one_in = 0;  // submissions that come back at once: queues full
  std::uint32_t lose_one_in = 0;
  bool reads_may_race = false;  // reads that bypass the cache
  std::uint64_t timeout_ns = 50'000'000;
};

inline constexpr IoStatus kReadError{0x281, IoKind::completed};
inline constexpr IoStatus kWriteError{0x280, IoKind::completed};
inline constexpr IoStatus kAbortedCommand{0x007, IoKind::completed};

class FakeDevices final : public simt::World {
 public:
  explicit FakeDevices(const FakeOptions& options)
      : options_(options), rng_(options.seed), lane_([this] { return now_ns(); }, [](std::uint32_t) {}) {
    for (std::uint32_t i = 0; i < options.ssds * options.namespaces; ++i) media_.emplace_back(options.blocks << 9);
    namespaces_.assign(options.namespaces, FakeNamespace{9, options.blocks});
  }

  FakeOptions& options() { return options_; }
  const FakeNamespace& ns(std::uint32_t index) const { return namespaces_[index]; }
  std::vector<std::byte>& media(std::uint32_t ssd, std::uint32_t ns) { return media_[ssd * options_.namespaces + ns]; }
  // From here on nothing fails. Any thread.
  void stop_errors() {
    std::lock_guard lock(mutex_);
    options_.read_error_one_in = options_.write_error_one_in = options_.refuse_one_in = options_.lose_one_in = 0;
  }
  void abort(bool on) { abort_.store(lane_, on ? 1 : 0); }
  template <class Lane>
  bool aborted(Lane& t) const {
    return abort_.load(t) != 0;
  }

  // What went wrong, or "".
  std::string fault() const {
    std::lock_guard lock(mutex_);
    return fault_;
  }
  std::size_t in_flight() const {
    std::lock_guard lock(mutex_);
    return commands_.size();
  }
  std::uint64_t reads() const { return reads_; }
  std::uint64_t writes() const { return writes_; }
  std::uint64_t flushes() const { return flushes_; }
  // What is in flight, lost or not, ends at once with an abort status, as after a controller reset.
  void reset() {
    std::lock_guard lock(mutex_);
    for (auto& [due_ns, command] : commands_) command.done->finish(lane_, kAbortedCommand);
    commands_.clear();
  }

  // The status that the caller is told at once; the end comes through `done`.
  IoStatus submit(std::uint32_t ssd, std::uint32_t ns, std::uint64_t lba, std::uint32_t blocks, std::byte* data,
                  bool write, Completion& done) {
    const simt::detail::ActsAsWorld as_world;
    std::lock_guard lock(mutex_);
    IoStatus refused{0, IoKind::completed};
    if (aborted(lane_)) refused.kind = IoKind::refused;
    if (blocks == 0) refused.kind = IoKind::bad_request;
    if (chance(options_.refuse_one_in)) refused.kind = IoKind::queues_full;
    if (!refused.ok()) {
      done.finish(lane_, refused);
      return refused;
    }
    Command command{ssd, ns, lba, blocks, data, write, &done, {}};
    for (const auto& [due_ns, other] : commands_) {
      const bool apart =
          other.ssd != ssd || other.ns != ns || other.lba + other.blocks <= lba || lba + blocks <= other.lba;
      const bool allowed = apart || (!write && !other.write) || (options_.reads_may_race && write != other.write);
      if (!allowed && fault_.empty()) fault_ = "two commands in flight for block " + std::to_string(lba);
    }
    if (write) {
      simt::detail::note_read(data, bytes_of(command));
      command.sent.assign(data, data + bytes_of(command));
    }
    (write ? writes_ : reads_) += 1;
    const std::uint64_t due_ns =
        chance(options_.lose_one_in) ? kNever : now() + 1 + rng_.below(2 * options_.latency_ns);
    commands_.emplace(due_ns, std::move(command));
    return {};
  }
  void note_flush() {
    const simt::detail::ActsAsWorld as_world;
    std::lock_guard lock(mutex_);
    ++flushes_;
  }

  // --- World ---
  std::uint64_t now_ns() override { return clock_ ? clock_() : now_ns_; }
  bool pass(std::uint64_t to_ns) override {
    bool any = false;
    std::lock_guard lock(mutex_);
    while (!commands_.empty() && commands_.begin()->first <= to_ns) {
      now_ns_ = std::max(now_ns_, commands_.begin()->first);
      const Command command = std::move(commands_.begin()->second);
      commands_.erase(commands_.begin());
      end(command);
      any = true;
    }
    now_ns_ = std::max(now_ns_, to_ns);
    return any;
  }
  std::uint64_t next_event_ns() override {
    std::lock_guard lock(mutex_);
    return commands_.empty() ? UINT64_MAX : commands_.begin()->first;
  }
  // For real time.
  void set_clock(std::function<std::uint64_t()> clock) { clock_ = std::move(clock); }

 private:
  static constexpr std::uint64_t kNever = UINT64_MAX;

  struct Command {
    std::uint32_t ssd;
    std::uint32_t ns;
    std::uint64_t lba;
    std::uint32_t blocks;
    std::byte* data;
    bool write;
    Completion* done;
    std::vector<std::byte> sent;  // what a write's buffer held at first
  };

  std::uint64_t now() { return clock_ ? clock_() : now_ns_; }
  bool chance(std::uint32_t one_in) { return one_in != 0 && rng_.below(one_in) == 0; }
  static std::size_t bytes_of(const Command& command) { return std::size_t{command.blocks} << 9; }

  void end(const Command& command) {
    auto& bytes = media(command.ssd, command.ns);
    if (command.lba + command.blocks > namespaces_[command.ns].blocks) {
      command.done->finish(lane_, {0x080, IoKind::completed});  // LBA out of range
      return;
    }
    std::byte* at = bytes.data() + (command.lba << 9);
    IoStatus status;
    (command.write ? simt::detail::note_read : simt::detail::note_write)(command.data, bytes_of(command));
    if (command.write) {
      if (std::memcmp(command.sent.data(), command.data, bytes_of(command)) != 0 && fault_.empty())
        fault_ = "data changed while being written, block " + std::to_string(command.lba);
      if (chance(options_.write_error_one_in))
        status = kWriteError;
      else
        std::memcpy(at, command.data, bytes_of(command));
    } else if (chance(options_.read_error_one_in)) {
      status = kReadError;
    } else {
      std::memcpy(command.data, at, bytes_of(command));
    }
    command.done->finish(lane_, status);
  }

  FakeOptions options_;
  Rng rng_;
  simt::HostLane lane_;
  std::function<std::uint64_t()> clock_;
  mutable std::mutex mutex_;
  std::vector<std::vector<std::byte>> media_;
  std::vector<FakeNamespace> namespaces_;
  std::multimap<std::uint64_t, Command> commands_;  // by when they end
  simt::Word<std::uint32_t, simt::Scope::system> abort_;
  std::string fault_;
  std::uint64_t now_ns_ = 1;
  std::uint64_t reads_ = 0;
  std::uint64_t writes_ = 0;
  std::uint64_t flushes_ = 0;
};

// A command's completion on the heap, as real tokens have their queue slot.
class FakeToken {
 public:
  FakeToken() = default;
  explicit FakeToken(Completion* done, FakeDevices* devices) : done_(done), devices_(devices) {}

  template <class Lane>
  bool test(Lane& t) const {
    return done_ == nullptr || done_->finished(t);
  }
  template <class Lane>
  IoStatus wait(Lane& t, WaitLimit limit = {}) const {
    if (done_ == nullptr) return {};
    const std::uint64_t start_ns = t.now_ns();
    const std::uint64_t timeout_ns = limit.timeout_ns != 0 ? limit.timeout_ns : devices_->options().timeout_ns;
    for (Backoff backoff; !done_->finished(t); backoff.pause(t)) {
      if (devices_->aborted(t)) return {0, IoKind::aborted};
      if (t.now_ns() - start_ns >= timeout_ns) return {0, IoKind::deadline};
    }
    const IoStatus status = done_->status(t);
    delete done_;
    return status;
  }
  template <class Lane>
  void abandon(Lane&) const {}

 private:
  Completion* done_ = nullptr;
  FakeDevices* devices_ = nullptr;
};

// What SsdRef is, for a FakeDevices.
class FakeSsd {
 public:
  FakeSsd() = default;
  FakeSsd(FakeDevices& devices, std::uint32_t index) : devices_(&devices), index_(index) {}

  std::uint32_t namespace_count() const { return devices_->options().namespaces; }
  const FakeNamespace& ns(std::uint32_t index) const { return devices_->ns(index); }
  std::uint64_t timeout_ns() const { return devices_->options().timeout_ns; }
  template <class Lane>
  bool aborted(Lane& t) const {
    return devices_->aborted(t);
  }
  template <class Lane>
  bool help(Lane&) const {
    return false;
  }
  template <class Lane>
  IoStatus read_into(Lane& t, std::uint32_t ns, std::uint64_t lba, std::uint32_t blocks, void* to,
                     Completion& done) const {
    t.pause(1);
    return devices_->submit(index_, ns, lba, blocks, static_cast<std::byte*>(to), false, done);
  }
  template <class Lane>
  IoStatus write_from(Lane& t, std::uint32_t ns, std::uint64_t lba, std::uint32_t blocks, const void* from,
                      Completion& done) const {
    t.pause(1);
    auto* data = const_cast<std::byte*>(static_cast<const std::byte*>(from));
    return devices_->submit(index_, ns, lba, blocks, data, true, done);
  }
  template <class Lane>
  IoStatus wait(Lane& t, const Completion& done, WaitLimit limit = {}) const {
    const std::uint64_t start_ns = t.now_ns();
    for (Backoff backoff; !done.finished(t); backoff.pause(t)) {
      if (aborted(t)) return {0, IoKind::aborted};
      if (t.now_ns() - start_ns >= (limit.timeout_ns != 0 ? limit.timeout_ns : timeout_ns()))
        return {0, IoKind::deadline};
    }
    return done.status(t);
  }
  template <class Lane>
  FakeToken read(Lane& t, std::uint32_t ns, std::uint64_t lba, std::uint32_t blocks, void* to) const {
    auto* done = new Completion{{0}};
    read_into(t, ns, lba, blocks, to, *done);
    return FakeToken(done, devices_);
  }
  template <class Lane>
  FakeToken write(Lane& t, std::uint32_t ns, std::uint64_t lba, std::uint32_t blocks, const void* from) const {
    auto* done = new Completion{{0}};
    write_from(t, ns, lba, blocks, from, *done);
    return FakeToken(done, devices_);
  }
  template <class Lane>
  FakeToken flush(Lane&, std::uint32_t) const {
    devices_->note_flush();
    return {};
  }

 private:
  FakeDevices* devices_ = nullptr;
  std::uint32_t index_ = 0;
};

}  // namespace flashmob::gpu::test

namespace flashmob::gpu {
template <>
struct TokenOf<test::FakeSsd> {
  using Type = test::FakeToken;
};
}  // namespace flashmob::gpu
