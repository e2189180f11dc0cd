// A hostile client of a gpu-socket, over a socket pair and in virtual time, before whatever machine runs the engine's
// kernel: gpu_socket_fuzz and gpu_socket_kernel_fuzz.
//
// Input: a list of steps. Most are messages of the right shape whose fields are drawn from the input, some are bytes as
// they come; others scribble over the shared memory (rings, doorbells, lists), cut its file short, or let the engine
// run. Whatever comes, the session answers every whole command exactly once, ends only where it says why, and leaves
// nothing behind when it has gone, which it does. One thread.
#pragma once

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "flashmob/error.h"
#include "fuzz/input.h"
#include "fuzz/kept_mappings.h"
#include "fuzz/socket_pairs.h"
#include "host/socket/gpu_socket_session.h"
#include "host/socket/served_engine.h"
#include "vfio/bus_error_guard.h"
#include "vfio/message_socket.h"

namespace flashmob::gpu::fuzz {

using flashmob::fuzz::Input;
using wire::Command;

inline constexpr std::size_t kFileBytes = 128 << 10;
inline constexpr std::uint64_t kBase = 0x10000;
inline constexpr int kMaxSteps = 128;
inline constexpr int kRunsPerStep = 40;
inline constexpr int kRunsToLeave = 1'000'000;

// The engine and the client's file live as long as the process; each input is one client of it.
struct Server {
  explicit Server(const ServedEngine::MachineMaker& make_machine)
      : clock(Clock::virtual_from(1'000'000)),
        engine(make_config(), clock, 2, make_machine),
        file(memfd_create("fuzz", MFD_CLOEXEC)) {
    FLASHMOB_CHECK(file && ftruncate(file.get(), kFileBytes) == 0);
    flashmob::fuzz::prefer_small_pages();
    flashmob::fuzz::keep_mappings(&vfio::BusErrorGuard::hits);
    flashmob::fuzz::keep_mappings_of(file.get());
    flashmob::fuzz::keep_sockets_here();
    void* const memory = ::mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    FLASHMOB_CHECK(memory != MAP_FAILED);
    shared = memory;
  }
  static DeviceConfig make_config() {
    DeviceConfig config;
    config.subsystem.namespaces[0].size_bytes = 1 << 20;
    config.timing.model = "none";
    return on_gpu_engine(config, 1);
  }
  // The kernel's turn, for which some time passes; false where it has nothing to do.
  bool let_run() {
    clock.advance_to(clock.now_ns() + 500);
    return engine.let_run();
  }
  // The file is empty and whole, for the next input.
  void clear_file() {
    if (std::exchange(whole, true))
      std::memset(shared, 0, kFileBytes);
    else
      FLASHMOB_CHECK(ftruncate(file.get(), 0) == 0 && ftruncate(file.get(), kFileBytes) == 0);
  }
  void cut_file(std::size_t bytes) {
    FLASHMOB_CHECK(ftruncate(file.get(), static_cast<off_t>(bytes)) == 0);
    whole = whole && bytes == kFileBytes;
  }

  Clock clock;
  ServedEngine engine;
  vfio::UniqueFd file;
  void* shared = nullptr;
  bool whole = true;  // since it was cleared
};

class Client {
 public:
  explicit Client(Server& server) : server_(server), file_(server.file) {
    int pair[2];
    server.clear_file();
    FLASHMOB_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    socket_ = std::make_unique<vfio::MessageSocket>(vfio::UniqueFd(pair[0]), 1 << 20);
    session_ = std::make_unique<GpuSocketSession>(server.engine, 1, "fibres", vfio::UniqueFd(pair[1]));
  }
  ~Client() {
    session_->leave();
    for (int runs = 0; !session_->gone(); ++runs) {
      FLASHMOB_CHECK(runs < kRunsToLeave);
      server_.let_run();
    }
    FLASHMOB_CHECK(session_->mapped_bytes() == 0 && session_->queues() == 0);
  }

  bool alive() const { return alive_; }

  void describe() {
    Payload payload;
    payload.add(wire::DescribeRequest{wire::kVersion, 0});
    send(Command::describe, payload, 0);
  }
  void map_all() {
    Payload payload;
    payload.add(wire::MapRequest{kBase, kFileBytes, 0, wire::Kind::file, 0, {}});
    send(Command::map, payload, 1);
  }
  void attach_one() {
    Payload payload;
    payload.add(wire::AttachRequest{1, 0});
    payload.add(wire::QueuePair{kBase, kBase + 0x4000, kBase + 0x8000, kBase + 0x8004, 64, 0});
    send(Command::attach, payload, 0);
  }

  void step(Input& in) {
    switch (in.byte() % 12) {
      case 0:
        return raw(in);
      case 1:
        return scribble(in, in.take<std::uint32_t>() % kFileBytes);
      case 2: {  // a command, where there is a ring
        scribble(in, (in.byte() % 64) * sizeof(nvme::Sqe));
        const std::uint32_t tail = in.byte() % 80;
        (void)!pwrite(file_.get(), &tail, sizeof(tail), 0x8000);
        return run();
      }
      case 3:
        return server_.cut_file(in.byte() % 2 == 0 ? 0 : kFileBytes);
      case 4:
        return run();
      default:
        return message(in);
    }
  }

 private:
  struct Payload {
    template <class T>
    void add(const T& value) {
      const std::size_t at = bytes.size();
      bytes.resize(at + sizeof(value));
      std::memcpy(bytes.data() + at, &value, sizeof(value));
    }
    std::vector<std::byte> bytes;
  };

  void run() {
    for (int i = 0; i < kRunsPerStep && server_.let_run(); ++i) continue;
    FLASHMOB_CHECK(!server_.engine.lost());
  }

  void scribble(Input& in, std::uint32_t at) {
    std::array<std::byte, 64> bytes{};
    in.copy(bytes.data(), bytes.size());
    (void)!pwrite(file_.get(), bytes.data(), bytes.size(), at);
  }

  void raw(Input& in) {
    const std::vector<std::byte> bytes = in.bytes(in.byte() % 48);
    (void)!::send(socket_->fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    exact_ = false;  // from here on the stream's messages are anybody's guess
    serve();
  }

  // Pages near the mapped ones, edges, anything.
  static std::uint64_t number(Input& in) {
    const std::uint8_t choice = in.byte();
    switch (choice >> 6) {
      case 0:
        return kBase + std::uint64_t{choice & 0x3Fu} * 0x1000;
      case 1:
        return std::uint64_t{choice & 0x3Fu} * 0x1000;
      case 2:
        return UINT64_MAX - (choice & 0x1Fu) * 0x1000u - ((choice >> 5) & 1);
      default:
        return in.take<std::uint64_t>();
    }
  }

  void message(Input& in) {
    constexpr std::array kCommands{Command::describe, Command::map,    Command::map,   Command::unmap,
                                   Command::attach,   Command::attach, Command::leave, static_cast<Command>(1)};
    const Command command = kCommands[in.byte() % kCommands.size()];
    Payload payload;
    std::size_t fds = 0;
    switch (command) {
      case Command::describe:
        payload.add(wire::DescribeRequest{in.byte() % 3u, in.byte() % 32 == 0 ? 1u : 0u});
        break;
      case Command::map: {
        fds = in.byte() % 8 == 0 ? in.byte() % 3 : 1;
        const auto kind = static_cast<wire::Kind>(in.byte() % 16 == 0 ? in.byte() % 3 : 0);
        payload.add(wire::MapRequest{number(in), number(in), number(in), kind, 0, {}});
        break;
      }
      case Command::unmap:
        payload.add(wire::UnmapRequest{number(in), number(in)});
        break;
      case Command::attach: {
        const std::uint32_t count = in.byte() % 5;
        payload.add(wire::AttachRequest{in.byte() % 16 == 0 ? in.take<std::uint32_t>() : count, 0});
        for (std::uint32_t i = 0; i < count; ++i)
          payload.add(wire::QueuePair{number(in), number(in), number(in), number(in), in.byte(), in.byte() % 2u});
        break;
      }
      default:
        break;
    }
    if (in.byte() % 32 == 0) payload.bytes.resize(in.byte());
    send(command, payload, fds);
  }

  void send(Command command, const Payload& payload, std::size_t fds) {
    if (!alive_) return;
    const std::array<int, 2> files{file_.get(), file_.get()};
    const std::uint16_t id = ++next_id_;
    const vfio::Header header{id, static_cast<std::uint16_t>(command), 0, vfio::kTypeCommand, 0};
    if (socket_->start_send(header, payload.bytes, std::span(files).first(fds)) != vfio::MessageSocket::Sent::whole) {
      alive_ = false;
      return;
    }
    serve();
    if (alive_ && exact_) FLASHMOB_CHECK(last_reply_ == id);
  }

  void serve() {
    alive_ = session_->serve() && alive_;
    vfio::Message reply;
    while (socket_->receive(reply) == vfio::MessageSocket::Received::message) check(reply);
    FLASHMOB_CHECK(alive_ || !session_->reason().empty());
  }

  void check(const vfio::Message& reply) {
    FLASHMOB_CHECK((reply.header.flags & vfio::kFlagTypeMask) == vfio::kTypeReply && reply.fds.empty());
    const bool failed = (reply.header.flags & vfio::kFlagError) != 0;
    FLASHMOB_CHECK(failed == (reply.header.error != 0));
    if (failed) FLASHMOB_CHECK(!wire::read_error(reply).empty() && !reply.payload.empty());
    if (!failed && reply.header.command == static_cast<std::uint16_t>(Command::describe))
      FLASHMOB_CHECK(wire::read_description(reply).namespaces.size() == 1);
    last_reply_ = reply.header.message_id;
  }

  Server& server_;
  const vfio::UniqueFd& file_;
  std::unique_ptr<vfio::MessageSocket> socket_;
  std::unique_ptr<GpuSocketSession> session_;
  std::uint16_t next_id_ = 0;
  std::uint16_t last_reply_ = 0;
  bool alive_ = true;
  bool exact_ = true;  // every message so far was a whole one
};

// The client's parser takes any reply, too.
inline void read_reply(const std::uint8_t* data, std::size_t size) {
  vfio::Message reply;
  reply.payload.resize(size);
  if (size != 0) std::memcpy(reply.payload.data(), data, size);
  (void)wire::read_error(reply);
  try {
    (void)wire::read_description(reply);
  } catch (const ConfigError&) {
    return;  // refused, as it should be
  }
}

inline void play(Server& server, const std::uint8_t* data, std::size_t size) {
  Input in(data, size);
  const std::uint8_t start = in.byte();
  if (start % 8 == 7) return read_reply(data + 1, size - 1);
  Client client(server);
  if (start % 8 > 0) client.describe();
  if (start % 8 > 1) client.map_all();
  if (start % 8 > 2) client.attach_one();
  for (int steps = 0; steps < kMaxSteps && !in.empty() && client.alive(); ++steps) client.step(in);
}

}  // namespace flashmob::gpu::fuzz
