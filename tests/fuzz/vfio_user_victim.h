// The other client of the vfio-user fuzzer's SSD: it keeps to every rule, and nothing that a hostile one does may be
// seen by it. One thread.
#pragma once

#include <array>
#include <cerrno>
#include <optional>

#include "fuzz/input.h"
#include "fuzz/vfio_user_world.h"
#include "nvme/admin_command.h"
#include "nvme/command.h"
#include "nvme/opcode.h"
#include "nvme/registers.h"
#include "nvme/status.h"
#include "vfio/message_socket.h"
#include "vfio/protocol.h"

namespace flashmob::fuzz {

class Victim {
 public:
  explicit Victim(VfioUserWorld& world)
      : world_(world), file_(world.machine.victim), socket_(std::move(connection_.ours), 1 << 20) {
    session_ = std::make_unique<transport::Session>(
        world.subsystem, world.machine.engine, world.machine.config.controller, std::move(connection_.theirs), true,
        controller::HostRights{controller::Access::io, {kVictimNsid}});
    std::vector<std::byte> payload;
    append(payload, vfio::Version{0, 1});
    (void)ask(vfio::Command::version, payload);
    payload.clear();
    append(payload, vfio::DmaMap{sizeof(vfio::DmaMap), 3, 0, 0, file_.size()});
    (void)ask(vfio::Command::dma_map, payload, {file_.fd()});
    payload.clear();
    append(payload, vfio::RegionInfo{256, 0, vfio::kRegionBar0, 0, 0, 0});
    const vfio::Message info = ask(vfio::Command::device_get_region_info, payload);
    FLASHMOB_CHECK(info.fds.size() == 1);
    doorbells_ = Doorbells(info.fds[0].get());
    enable();
  }

  // Something that a host does. What it asks for may be under way until a later step.
  void step(Input& in) {
    const std::uint8_t choice = in.byte();
    const unsigned place = choice % kPlaces;
    switch (choice >> 3 & 3) {
      case 0:
        return begin(place, true, static_cast<std::uint8_t>(choice >> 5));
      case 1:
        return begin(place, false, 0);
      case 2:
        return collect();
      default:
        return finish([this] { return identify(); });
    }
  }

  // All that it has written, once more.
  void check_all() {
    collect();
    recover_if_reset();
    for (unsigned place = 0; place < kPlaces; ++place) start(place, false, 0);
    collect();
    FLASHMOB_CHECK(is_zero({file_.data() + kGuardAt, kDataAt - kGuardAt}));
  }

 private:
  static constexpr unsigned kPlaces = 8;  // each with eight blocks, a page, and one command at a time
  static constexpr std::uint32_t kPageBytes = 4096;
  static constexpr std::uint32_t kEntries = 16;
  static constexpr std::size_t kGuardAt = 4 * kPageBytes;
  static constexpr std::size_t kDataAt = 8 * kPageBytes;
  static constexpr int kPatience = 200;

  struct Queue {
    std::uint32_t tail = 0, head = 0, phase = 1;
  };
  struct Place {
    bool busy = false;
    bool writes = false;
    bool known = true;  // false: a write was under way when the subsystem was reset
    std::uint8_t version = 0, next = 0;
  };

  vfio::Message ask(vfio::Command command, std::span<const std::byte> payload, std::vector<int> fds = {}) {
    const std::uint16_t id = ++next_id_;
    FLASHMOB_CHECK(socket_.start_send({id, static_cast<std::uint16_t>(command), 0, 0, 0}, payload, fds) ==
                   vfio::MessageSocket::Sent::whole);
    vfio::Message reply;
    for (int looks = 0;; ++looks) {
      FLASHMOB_CHECK(looks < kPatience && session_->serve(16));
      if (socket_.receive(reply) == vfio::MessageSocket::Received::message) break;
      world_.settle();
    }
    FLASHMOB_CHECK(reply.header.message_id == id && reply.header.flags == vfio::kTypeReply && reply.header.error == 0);
    return reply;
  }
  std::uint32_t status_word() {
    std::vector<std::byte> payload;
    append(payload, vfio::RegionAccess{nvme::kRegCsts, vfio::kRegionBar0, 4});
    const vfio::Message reply = ask(vfio::Command::region_read, payload);
    std::uint32_t value = 0;
    FLASHMOB_CHECK(reply.read(value, sizeof(vfio::RegionAccess)));
    return value;
  }
  bool ready() { return nvme::decode_csts(status_word()).rdy; }

  void enable() {
    std::memset(file_.data(), 0, 4 * kPageBytes);
    queues_ = {};
    using One = vfio::RegionWriteOne;
    const std::uint32_t on = nvme::encode_cc({.en = true, .iosqes = 6, .iocqes = 4});
    const std::uint32_t aqa = nvme::encode_aqa({kEntries - 1, kEntries - 1});
    std::vector<std::byte> payload;
    append(payload, std::uint64_t{5});
    append(payload, One{nvme::kRegCc, 0, 4, 0});
    append(payload, One{nvme::kRegAqa, 0, 4, aqa});
    append(payload, One{nvme::kRegAsq, 0, 8, 0});
    append(payload, One{nvme::kRegAcq, 0, 8, kPageBytes});
    append(payload, One{nvme::kRegCc, 0, 4, on});
    (void)ask(vfio::Command::region_write_multi, payload);
    for (int looks = 0; !ready(); ++looks) {
      FLASHMOB_CHECK(looks < kPatience);
      if (looks > 3) world_.pass_to_next();
      world_.settle();
    }
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::create_io_cq);
    sqe.prp1 = 3 * kPageBytes;
    nvme::encode_create_io_cq({.qid = 1, .qsize = kEntries - 1}, sqe);
    FLASHMOB_CHECK(admin(sqe));
    sqe = {};
    sqe.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::create_io_sq);
    sqe.prp1 = 2 * kPageBytes;
    nvme::encode_create_io_sq({.qid = 1, .qsize = kEntries - 1, .cqid = 1}, sqe);
    FLASHMOB_CHECK(admin(sqe));
  }

  void submit(unsigned qid, const nvme::Sqe& sqe) {
    Queue& queue = queues_[qid];
    std::memcpy(file_.data() + 2 * qid * kPageBytes + queue.tail * sizeof(sqe), &sqe, sizeof(sqe));
    queue.tail = (queue.tail + 1) % kEntries;
    doorbells_.ring(2 * qid, queue.tail);
  }
  // The next completion, if there is one.
  std::optional<nvme::Cqe> take(unsigned qid) {
    Queue& queue = queues_[qid];
    nvme::Cqe cqe;
    std::memcpy(&cqe, file_.data() + (2 * qid + 1) * kPageBytes + queue.head * sizeof(cqe), sizeof(cqe));
    if ((cqe.status_phase & 1u) != queue.phase) return std::nullopt;
    if (++queue.head == kEntries) {
      queue.head = 0;
      queue.phase ^= 1;
    }
    doorbells_.ring(2 * qid + 1, queue.head);
    FLASHMOB_CHECK(cqe.sqid == qid);
    return cqe;
  }
  // As take(), when time passes. Nothing: the controller was reset.
  std::optional<nvme::Cqe> wait(unsigned qid) {
    for (int looks = 0; looks < kPatience; ++looks) {
      world_.settle();
      if (const auto cqe = take(qid)) return cqe;
      if (looks >= 2 && !ready()) return std::nullopt;
      // Others may have asked for much before it.
      if (looks < 20)
        world_.pass_to_next();
      else
        world_.pass_ns(10'000'000);
    }
    FLASHMOB_CHECK(false && "a command of the victim's is not answered");
    return std::nullopt;
  }
  // False where the controller was reset meanwhile.
  bool admin(nvme::Sqe sqe) {
    sqe.cid = ++next_cid_;
    submit(0, sqe);
    const auto cqe = wait(0);
    if (!cqe) return false;
    FLASHMOB_CHECK(cqe->cid == sqe.cid && cqe->status_phase >> 1 == 0);
    return true;
  }
  bool identify() {
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::identify);
    sqe.prp1 = 15 * kPageBytes;
    sqe.cdw10 = 1;
    if (places_[7].busy) return true;  // its page is in use
    return admin(sqe);
  }

  // Once more where the subsystem was reset, which only some hosts may do.
  template <class Work>
  void finish(Work&& work) {
    for (int tries = 0; !work(); ++tries) {
      FLASHMOB_CHECK(world_.may_be_reset() && tries < 2);
      recover();
    }
  }
  void recover() {
    for (Place& place : places_) {
      place.known &= !place.busy || !place.writes;
      place.busy = false;
    }
    enable();
  }

  void begin(unsigned index, bool write, std::uint8_t salt) {
    Place& place = places_[index];
    if (place.busy) collect();
    if (!write && !place.known) return;
    recover_if_reset();
    start(index, write, salt);
  }
  void recover_if_reset() {
    if (ready()) return;
    FLASHMOB_CHECK(world_.may_be_reset());
    recover();
  }
  // Of a controller that is ready.
  void start(unsigned index, bool write, std::uint8_t salt) {
    Place& place = places_[index];
    if (!write && !place.known) return;
    place.busy = true;
    place.writes = write;
    place.next = static_cast<std::uint8_t>(place.version + 1 + salt);
    std::byte* const page = file_.data() + kDataAt + index * kPageBytes;
    if (write)
      fill(page, index, place.next);
    else
      std::memset(page, 0xEE, kPageBytes);
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(write ? nvme::NvmOpcode::write : nvme::NvmOpcode::read);
    sqe.nsid = kVictimNsid;
    sqe.cid = static_cast<std::uint16_t>(index);
    sqe.prp1 = kDataAt + index * kPageBytes;
    sqe.cdw10 = index * 8;
    sqe.cdw12 = 7;
    submit(1, sqe);
  }
  void collect() {
    while (std::any_of(places_.begin(), places_.end(), [](const Place& place) { return place.busy; })) {
      const auto cqe = wait(1);
      if (!cqe) {
        FLASHMOB_CHECK(world_.may_be_reset());
        recover();
        return;
      }
      FLASHMOB_CHECK(cqe->cid < kPlaces && places_[cqe->cid].busy && cqe->status_phase >> 1 == 0);
      Place& place = places_[cqe->cid];
      place.busy = false;
      if (place.writes) {
        place.version = place.next;
        place.known = true;
      } else {
        check_page(cqe->cid, place.version);
      }
    }
  }

  static void fill(std::byte* page, unsigned index, std::uint8_t version) {
    const std::uint64_t word = secret();
    for (std::size_t at = 0; at < kPageBytes; at += 16) {
      const std::uint64_t says = version == 0 ? 0 : at << 16 | index << 8 | version;
      const std::uint64_t first = version == 0 ? 0 : word;
      std::memcpy(page + at, &first, 8);
      std::memcpy(page + at + 8, &says, 8);
    }
  }
  void check_page(unsigned index, std::uint8_t version) const {
    std::array<std::byte, kPageBytes> expected;
    fill(expected.data(), index, version);
    FLASHMOB_CHECK(std::memcmp(expected.data(), file_.data() + kDataAt + index * kPageBytes, kPageBytes) == 0);
  }

  VfioUserWorld& world_;
  SharedFile& file_;
  Connection connection_;
  vfio::MessageSocket socket_;
  std::unique_ptr<transport::Session> session_;
  Doorbells doorbells_;
  std::array<Queue, 2> queues_;
  std::array<Place, kPlaces> places_;
  std::uint16_t next_id_ = 0;
  std::uint16_t next_cid_ = 0;
};

}  // namespace flashmob::fuzz
