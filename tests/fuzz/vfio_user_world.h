// What the vfio-user fuzzer plays in: an SSD in virtual time that is polled by hand, and the files that its clients
// share. Engines and files live as long as the process; the subsystem, which clients can change for good, is each
// input's own. One thread.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "controller/subsystem.h"
#include "engine/engine.h"
#include "fuzz/kept_files.h"
#include "fuzz/kept_mappings.h"
#include "fuzz/socket_pairs.h"
#include "fuzz/vfio_user_shapes.h"
#include "transport/vfio_user/session.h"
#include "vfio/bus_error_guard.h"
#include "vfio/peer_event.h"
#include "vfio/unique_fd.h"

namespace flashmob::fuzz {

// The client's namespace and the victim's.
inline constexpr std::uint32_t kHostileNsid = 1;
inline constexpr std::uint32_t kVictimNsid = 2;
inline constexpr std::uint64_t kNamespaceBytes = 64 << 10;

// Every other word of what the victim writes. Nothing compares with it as it is: the fuzzer would learn it.
inline std::uint64_t secret() {
  static volatile std::uint64_t mask = 0x9E3779B97F4A7C15;
  return 0x5A17C0FFEE5EED00 ^ mask;
}

#if defined(__clang__)
#define FLASHMOB_UNSEEN __attribute__((no_sanitize("address", "undefined", "coverage")))
#else
#define FLASHMOB_UNSEEN
#endif

// True if all of them are; quick also under sanitizers, because the library compares.
inline bool is_zero(std::span<const std::byte> bytes) {
  return bytes.empty() ||
         (bytes[0] == std::byte{0} && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

// Whether the victim's word stands anywhere in `bytes`, at any four bytes.
FLASHMOB_UNSEEN inline bool holds_secret(std::span<const std::byte> bytes) {
  const std::uint64_t word = secret();
  const auto low = static_cast<std::uint32_t>(word);
  const auto high = static_cast<std::uint32_t>(word >> 32);
  std::uint32_t before = 0;
  constexpr std::size_t kPage = 4096;
  for (std::size_t at = 0; at + 4 <= bytes.size(); at += 4) {
    // Most of the memory was never written: whole pages of it are passed over.
    for (; at % kPage == 0 && at + kPage <= bytes.size() && is_zero(bytes.subspan(at, kPage)); at += kPage) before = 0;
    if (at + 4 > bytes.size()) break;
    std::uint32_t now;
    std::memcpy(&now, bytes.data() + at, sizeof(now));
    if (((now ^ high) | (before ^ low)) == 0) return true;
    before = now;
  }
  return false;
}

// A file in memory, mapped here for good. Only a client touches it while it is cut short.
class SharedFile {
 public:
  explicit SharedFile(std::size_t bytes) : bytes_(bytes), fd_(memfd_create("fuzz", MFD_CLOEXEC)) {
    FLASHMOB_CHECK(fd_ && ftruncate(fd_.get(), static_cast<off_t>(bytes)) == 0);
    void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
    FLASHMOB_CHECK(memory != MAP_FAILED);
    memory_ = static_cast<std::byte*>(memory);
  }
  ~SharedFile() { ::munmap(memory_, bytes_); }
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  int fd() const { return fd_.get(); }
  std::size_t size() const { return bytes_; }
  std::byte* data() const { return memory_; }
  bool whole() const { return whole_; }
  void cut(std::size_t bytes) {
    FLASHMOB_CHECK(ftruncate(fd_.get(), static_cast<off_t>(bytes)) == 0);
    whole_ = bytes == bytes_;
  }
  void clear() {
    if (!whole_) {
      cut(0);
      cut(bytes_);
    } else {
      std::memset(memory_, 0, bytes_);
    }
  }

 private:
  std::size_t bytes_;
  vfio::UniqueFd fd_;
  std::byte* memory_;
  bool whole_ = true;
};

// What clients map. All kinds of machines have the same: a mapping is kept at the address where its client's come to
// lie, and one of another file there would take its place with every input of another kind.
struct VfioUserFiles {
  static constexpr std::size_t kHostileBytes = 128 << 10;
  static constexpr std::size_t kVictimBytes = 64 << 10;

  VfioUserFiles() : hostile(kHostileBytes), victim(kVictimBytes) {
    keep_mappings_of(hostile.fd());
    keep_mappings_of(victim.fd());
  }
  static VfioUserFiles& get() {
    static VfioUserFiles files;
    return files;
  }

  SharedFile hostile;
  SharedFile victim;
};

// An engine in virtual time, and all that needs not be made anew for each input.
struct VfioUserMachine {
  static constexpr unsigned kKinds = 4;

  explicit VfioUserMachine(unsigned kind)
      : config(make_config(kind)),
        clock(Clock::virtual_from(1'000'000)),
        engine(config, clock, nullptr, limits(kind)) {}
  // 0: everything is done at once. 1: requests wait for their time. 2: two units with workers of their own, polled in
  // an order of the input's choice. 3: as 1, with 64 slots for everybody besides what each has for itself.
  static VfioUserMachine& get(unsigned kind) {
    static std::unique_ptr<VfioUserMachine> all[kKinds];
    vfio::prepare_events();
    keep_mappings(&vfio::BusErrorGuard::hits);
    keep_files();
    keep_sockets_here();
    if (!all[kind]) all[kind] = std::make_unique<VfioUserMachine>(kind);
    return *all[kind];
  }
  static DeviceConfig make_config(unsigned kind) {
    DeviceConfig config;
    config.subsystem.namespaces = {NamespaceConfig{.size_bytes = kNamespaceBytes},
                                   NamespaceConfig{.size_bytes = kNamespaceBytes}};
    config.subsystem.spare_capacity_bytes = kNamespaceBytes;
    config.controller.max_queue_pairs = 4;
    config.controller.interrupt_vectors = 5;
    config.controller.max_queue_entries = 1024;
    config.controller.max_transfer_bytes = 32 << 10;
    config.timing.model = kind == 0 ? "none" : "simple";
    config.timing.read_latency_ns = 20'000;
    config.timing.write_latency_ns = 10'000;
    config.engine.units = kind == 2 ? 2 : 1;
    config.engine.workers = kind == 2 ? 1 : 0;
    return config;
  }
  static engine::SlotLimits limits(unsigned kind) {
    if (kind != 3) return {};
    // Two clients' own (engine/port.h, engine/worker.h), and 64.
    constexpr std::uint32_t kOwn = 8 + engine::PortContext::kAdminCommands + engine::Requests::kLeastSlots;
    return {.slots = 2 * kOwn + 64, .controllers = 2};
  }

  DeviceConfig config;
  Clock clock;
  engine::Engine engine;
  SharedFile& hostile = VfioUserFiles::get().hostile;
  SharedFile& victim = VfioUserFiles::get().victim;
};

// One input's SSD.
class VfioUserWorld {
 public:
  VfioUserWorld(VfioUserMachine& m, std::uint8_t rights)
      : machine(m),
        subsystem(m.config.subsystem, 1, m.config.timing.unit_bytes),
        hostile_rights{rights == 0   ? controller::Access::io
                       : rights == 1 ? controller::Access::admin
                                     : controller::Access::manage,
                       {kHostileNsid}} {
    machine.hostile.clear();
    machine.victim.clear();
  }

  // One round of one actor.
  void poll(unsigned actor) { (void)machine.engine.poll_actor(actor % machine.engine.actors()); }
  // Until nobody has anything to do now.
  void settle() {
    const unsigned actors = machine.engine.actors();
    int rounds = 0;
    for (bool worked = true; worked; ++rounds) {
      FLASHMOB_CHECK(rounds < kMostRounds);
      worked = false;
      for (unsigned actor = 0; actor < actors; ++actor) worked |= machine.engine.poll_actor(actor);
    }
  }
  void pass_ns(std::uint64_t ns) {
    machine.clock.advance_to(machine.clock.now_ns() + ns);
    settle();
  }
  // To the time when something is due; false where nothing ever is.
  bool pass_to_next() {
    std::uint64_t next_ns = UINT64_MAX;
    for (unsigned actor = 0; actor < machine.engine.actors(); ++actor)
      next_ns = std::min(next_ns, machine.engine.actor_deadline_ns(actor));
    const std::uint64_t now_ns = machine.clock.now_ns();
    pass_ns(next_ns <= now_ns ? 1 : std::min<std::uint64_t>(next_ns - now_ns, kLongestNs));
    return next_ns != UINT64_MAX;
  }
  bool may_be_reset() const { return hostile_rights.may_manage(); }

  // Everybody has gone, and nothing of theirs is left.
  void check_empty() {
    settle();
    FLASHMOB_CHECK(machine.engine.outstanding() == 0);
    const std::lock_guard lock(subsystem.mutex());
    FLASHMOB_CHECK(subsystem.controllers().empty());
  }

  VfioUserMachine& machine;
  controller::Subsystem subsystem;
  const controller::HostRights hostile_rights;

 private:
  // Far more than anything takes that goes on by itself.
  static constexpr int kMostRounds = 100'000;
  static constexpr std::uint64_t kLongestNs = 1'000'000'000;
};

// What both ends of a connection hold of it.
struct Connection {
  Connection() {
    int pair[2];
    FLASHMOB_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    ours = vfio::UniqueFd(pair[0]);
    theirs = vfio::UniqueFd(pair[1]);
  }
  vfio::UniqueFd ours, theirs;
};

// The doorbells as a client maps them.
class Doorbells {
 public:
  Doorbells() = default;
  explicit Doorbells(int fd) {
    void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0x1000);
    FLASHMOB_CHECK(memory != MAP_FAILED);
    words_ = static_cast<std::uint32_t*>(memory);
  }
  ~Doorbells() {
    if (words_ != nullptr) ::munmap(words_, kBytes);
  }
  Doorbells(Doorbells&& other) noexcept { std::swap(words_, other.words_); }
  Doorbells& operator=(Doorbells&& other) noexcept {
    std::swap(words_, other.words_);
    return *this;
  }
  explicit operator bool() const { return words_ != nullptr; }
  void ring(unsigned index, std::uint32_t value) const {
    std::atomic_ref<std::uint32_t>(words_[index]).store(value, std::memory_order_release);
  }

 private:
  static constexpr std::size_t kBytes = 4096;
  std::uint32_t* words_ = nullptr;
};

}  // namespace flashmob::fuzz
