// The hostile client of the vfio-user fuzzer: what one step of the input has it do, and what must hold whatever it
// does. One thread.
#pragma once

#include <sys/eventfd.h>

#include <deque>
#include <exception>
#include <optional>
#include <utility>

#include "fuzz/failures.h"
#include "fuzz/vfio_user_rings.h"
#include "fuzz/vfio_user_world.h"
#include "nvme/registers.h"
#include "vfio/message_socket.h"
#include "vfio/protocol.h"

namespace flashmob::fuzz {

class HostileClient {
 public:
  // Bit 0: the sockets hold little. Bit 1: it does not begin with what every host begins with. Bit 2: the controller is
  // not enabled at once.
  HostileClient(VfioUserWorld& world, std::uint8_t shape)
      : world_(world),
        file_(world.machine.hostile),
        event_(eventfd(0, EFD_CLOEXEC)),
        socket_(first_end(shape), 4 << 20),
        rings_(file_) {
    session_ =
        std::make_unique<transport::Session>(world.subsystem, world.machine.engine, world.machine.config.controller,
                                             std::move(connection_.theirs), true, world.hostile_rights);
    if ((shape & 2) != 0) return;
    negotiate();
    map_all();
    if ((shape & 4) != 0) return;
    enable();
    world_.settle();
    rings_.create_queue(1, 16);
    world_.settle();
  }

  bool alive() const { return session_ != nullptr; }

  void step(std::uint8_t choice, Input& in) {
    if (choice < 96)
      rings_.command(choice, in);
    else if (choice < 128)
      world_.poll(choice);
    else if (choice < 176)
      message(in);
    else
      special(choice % 16, in);
    if (alive() && session_->has_cut_memory()) drop("it cut memory short that it shares");
  }

  // It reads what there is, and goes.
  void end() {
    muted_ = false;
    if (alive()) serve();
    const bool answered = !alive() || !exact_ || session_->is_resetting() || asked_.empty();
    FLASHMOB_CHECK(answered);
    session_.reset();
    // Nothing that was the victim's. What is cut short is gone.
    if (!file_.whole()) return;
    FLASHMOB_CHECK(!holds_secret({file_.data(), file_.size()}));
  }

 private:
  static constexpr std::uint32_t kPageBytes = HostileRings::kPageBytes;
  static constexpr std::uint32_t kPages = HostileRings::kPages;
  static constexpr int kPatience = 2'000;

  vfio::UniqueFd first_end(std::uint8_t shape) {
    if ((shape & 1) != 0) {
      const int least = 1;
      for (const int fd : {connection_.ours.get(), connection_.theirs.get()})
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &least, sizeof(least));
    }
    return std::move(connection_.ours);
  }

  // --- What every host begins with ---
  void negotiate() {
    const char text[] = R"({"capabilities":{"max_msg_fds":8}})";
    std::vector<std::byte> payload;
    append(payload, vfio::Version{0, 1});
    append(payload, text);
    send(vfio::Command::version, payload, {}, 0);
  }
  // All of the file from address 0 on, and the doorbells: these are never served by messages then, nor by a thread.
  void map_all() {
    std::vector<std::byte> payload;
    append(payload, vfio::DmaMap{sizeof(vfio::DmaMap), 3, 0, 0, file_.size()});
    const int fd = file_.fd();
    send(vfio::Command::dma_map, payload, {&fd, 1}, 0);
    payload.clear();
    append(payload, vfio::RegionInfo{256, 0, 0, 0, 0, 0});
    send(vfio::Command::device_get_region_info, payload, {}, 0);
  }
  void enable() {
    using One = vfio::RegionWriteOne;
    std::vector<std::byte> payload;
    append(payload, std::uint64_t{4});
    append(payload, One{nvme::kRegAqa, 0, 4, nvme::encode_aqa({31, 31})});
    append(payload, One{nvme::kRegAsq, 0, 8, 0});
    append(payload, One{nvme::kRegAcq, 0, 8, kPageBytes});
    append(payload, One{nvme::kRegCc, 0, 4, nvme::encode_cc({.en = true, .iosqes = 6, .iocqes = 4})});
    send(vfio::Command::region_write_multi, payload, {}, 0);
    rings_.begin(32);
  }
  void disable(std::uint32_t cc) {
    std::vector<std::byte> payload;
    append(payload, vfio::RegionAccess{nvme::kRegCc, 0, 4});
    append(payload, cc);
    send(vfio::Command::region_write, payload, {}, 0);
  }

  // --- Everything else ---
  void special(unsigned which, Input& in) {
    switch (which) {
      case 0:
        return raw(in);
      case 1: {
        const unsigned index = in.byte() % 16;
        return rings_.ring(index, number32(in));
      }
      case 2:
      case 3: {
        const std::size_t at = in.byte() % (kPages * 8) * 512u + (which == 2 ? 0u : in.byte() * 2u);
        const std::size_t bytes = std::min<std::size_t>(which == 2 ? 8 : 64, file_.size() - at);
        if (file_.whole()) in.copy(file_.data() + at, bytes);
        return;
      }
      case 4:
        return file_.cut(in.byte() % 4 == 0 ? in.byte() % kPages * kPageBytes : file_.size());
      case 5:
        session_->on_event();
        return serve();
      case 6:
        return enable();
      case 7:
        return disable(word(in) & ~1u);
      case 8:
        return world_.pass_ns(std::uint64_t{1} << in.byte() % 32);
      case 9:
        world_.settle();
        return;
      case 10:
        return rings_.consume(in.byte());
      case 11:
        return touch_event(in.byte());
      case 12:
        muted_ = !muted_;
        return serve();
      case 13: {
        const std::uint8_t lack = in.byte();
        lack_ = {static_cast<Lack>(lack % 3), lack / 3u};
        message(in);
        lack_.reset();
        return;
      }
      case 14:
        (void)world_.pass_to_next();
        return;
      default: {
        const auto qid = static_cast<std::uint16_t>(1 + in.byte() % 4);
        const std::uint32_t entries = 2u + in.byte();
        return rings_.create_queue(qid, entries, in.byte());
      }
    }
  }

  // Flags and counter of an eventfd that the session has been given.
  void touch_event(std::uint8_t choice) {
    const int flags = fcntl(event_.get(), F_GETFL);
    switch (choice % 4) {
      case 0:
        (void)fcntl(event_.get(), F_SETFL, flags & ~O_NONBLOCK);
        return;
      case 1:
        (void)fcntl(event_.get(), F_SETFL, flags | O_NONBLOCK);
        return;
      default: {
        // Full, or empty.
        (void)fcntl(event_.get(), F_SETFL, flags | O_NONBLOCK);
        eventfd_t value = 0;
        (void)eventfd_read(event_.get(), &value);
        if (choice % 4 == 2) (void)eventfd_write(event_.get(), UINT64_MAX - 1);
        (void)fcntl(event_.get(), F_SETFL, flags);
      }
    }
  }

  void raw(Input& in) {
    const std::vector<std::byte> bytes = in.bytes(in.byte() % 32);
    if (!bytes.empty()) (void)!::send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    exact_ = false;  // from here on the stream's messages are anybody's guess
    serve();
  }

  void message(Input& in) {
    Shaped shaped = shape_message(in);
    // Memory that only messages reach is another fuzzer's.
    if (shaped.command == vfio::Command::dma_map && shaped.file_count == 0) shaped.file_count = 1;
    std::array<int, 4> fds;
    for (std::size_t i = 0; i < shaped.file_count; ++i)
      fds[i] = shaped.files[i] == SentFile::memory  ? file_.fd()
               : shaped.files[i] == SentFile::event ? event_.get()
                                                    : socket_.fd();
    send(shaped.command, shaped.payload, std::span(fds).first(shaped.file_count), shaped.flags);
  }

  void send(vfio::Command command, std::span<const std::byte> payload, std::span<const int> fds, std::uint32_t flags) {
    if (!alive()) return;
    const std::uint16_t id = ++next_id_;
    auto sent = socket_.start_send({id, static_cast<std::uint16_t>(command), 0, flags, 0}, payload, fds);
    for (int tries = 0; sent == vfio::MessageSocket::Sent::waits && alive(); ++tries) {
      // The session takes nothing in before its answers are read.
      FLASHMOB_CHECK(tries < kPatience);
      muted_ = false;
      serve();
      world_.settle();
      if (alive()) sent = socket_.flush();
    }
    if (!alive()) return;
    if (sent == vfio::MessageSocket::Sent::failed) return drop("it cannot be sent anything");
    if ((flags & vfio::kFlagNoReply) == 0) asked_.push_back(id);
    serve();
  }

  // The session's turn as the server gives it, and the client reads its answers.
  void serve() {
    for (int turns = 0; alive(); ++turns) {
      FLASHMOB_CHECK(turns < kPatience);
      const bool going = serve_once();
      const bool read = !muted_ && read_answers();
      if (!going) return drop(session_->why());
      if (session_->is_resetting())
        world_.settle();
      else if (!read && (muted_ || !session_->wants_to_write()))
        break;
    }
    if (alive() && exact_ && !muted_) FLASHMOB_CHECK(asked_.empty());
  }
  bool serve_once() {
    const auto lack = std::exchange(lack_, std::nullopt);
    try {
      std::optional<Failure> failure;
      if (lack) failure.emplace(lack->what, lack->after);
      return session_->serve(16);
    } catch (const std::exception& error) {
      FLASHMOB_CHECK(lack);  // nothing else is a reason to throw
      session_->give_up(error.what());
      return false;
    }
  }
  bool read_answers() {
    vfio::Message message;
    bool any = false;
    while (socket_.receive(message) == vfio::MessageSocket::Received::message) {
      check(message);
      any = true;
    }
    return any;
  }
  void check(const vfio::Message& reply) {
    FLASHMOB_CHECK((reply.header.flags & vfio::kFlagTypeMask) == vfio::kTypeReply);
    const bool error = (reply.header.flags & vfio::kFlagError) != 0;
    FLASHMOB_CHECK(error == (reply.header.error != 0));
    FLASHMOB_CHECK(!error || (reply.payload.empty() && reply.fds.empty()));
    if (exact_) {
      FLASHMOB_CHECK(!asked_.empty() && asked_.front() == reply.header.message_id);
      asked_.pop_front();
    }
    FLASHMOB_CHECK(!holds_secret(reply.payload));
    vfio::RegionInfo info{};
    if (!reply.fds.empty() && !rings_.has_doorbells() && reply.read(info)) rings_.map_doorbells(reply.fds[0].get());
  }

  // As the server does it: the controller is taken off the engine.
  void drop(const std::string& why) {
    FLASHMOB_CHECK(!why.empty());
    session_.reset();
    asked_.clear();
    if (!file_.whole()) file_.cut(file_.size());
  }

  VfioUserWorld& world_;
  SharedFile& file_;
  Connection connection_;
  vfio::UniqueFd event_;
  vfio::MessageSocket socket_;
  HostileRings rings_;
  std::unique_ptr<transport::Session> session_;
  std::deque<std::uint16_t> asked_;  // messages whose answers have not been read
  std::uint16_t next_id_ = 0;
  bool muted_ = false;  // it does not read
  bool exact_ = true;   // every message so far was a whole one
  struct Lacking {
    Lack what;
    unsigned after;
  };
  std::optional<Lacking> lack_;  // while the session serves the next time
};

}  // namespace flashmob::fuzz
