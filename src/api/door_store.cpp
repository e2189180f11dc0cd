#include "api/door_store.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "api/fill.h"
#include "base/check.h"
#include "driver/data_buffer.h"
#include "driver/names.h"
#include "media/block_content.h"
#include "nvme/identify_controller.h"
#include "nvme/identify_namespace.h"
#include "nvme/io_commands.h"
#include "nvme/opcode.h"

namespace flashmob::api {
namespace {

constexpr std::uint32_t kSlots = 32;
constexpr std::uint32_t kChunkBytes = 128 * 1024;
constexpr std::uint64_t kSamples = 1024;
constexpr std::uint32_t kMaxTransferBytes = 1 << 20;
// Without an answer for this long the controller is asked whether it is still there, and looks become rare.
constexpr std::uint64_t kSilenceNs = 500'000'000;
constexpr std::chrono::milliseconds kRareLook{1};
// To give up looking at samples costs no more than the verification of reads, so it does not take long.
constexpr std::uint64_t kSamplePatienceNs = 5'000'000'000;
constexpr std::uint16_t kStatusCodeMask = 0x7FF;

struct Piece {
  std::uint64_t lba;
  std::uint32_t bytes;
};

// Reads or writes many pieces of a namespace, kSlots of them at once, on a queue pair of its own.
class StoreIo {
 public:
  using Buffer = std::span<std::byte>;

  StoreIo(driver::NvmeDriver& driver, const DoorNamespace& ns, std::uint32_t piece_bytes, const Patience& patience)
      : driver_(driver),
        ns_(ns),
        patience_(patience),
        piece_bytes_(std::max(piece_bytes, 4096u)),
        memory_(driver.device(), std::size_t{piece_bytes_} * kSlots),
        lists_(driver.device(), kSlots, piece_bytes_),
        pair_(driver.create_queue_pair({.sq_entries = kSlots + 1})) {}
  ~StoreIo() {
    try {
      driver_.delete_queue_pair(pair_);
    } catch (const std::exception&) {
      // The device is gone, and the queue with it; whoever uses the driver next is told.
    }
  }
  StoreIo(const StoreIo&) = delete;
  StoreIo& operator=(const StoreIo&) = delete;

  // `next` answers the piece of each turn 0, 1, ... `before` fills a write's buffer, `after` sees a read's. Returns the
  // first failing status, 0 if there is none; then nothing more is started. Throws NvmeTimeout when patience ends.
  std::uint16_t run(nvme::NvmOpcode opcode, std::uint64_t count, const std::function<Piece(std::uint64_t)>& next,
                    const std::function<void(std::uint64_t, Buffer)>& before,
                    const std::function<void(std::uint64_t, Buffer)>& after) {
    std::array<std::uint64_t, kSlots> turns{};
    std::vector<std::uint16_t> free;
    for (std::uint16_t slot = kSlots; slot-- > 0;) free.push_back(slot);
    std::uint64_t turn = 0;
    std::uint16_t failed = 0;
    last_answer_ns_ = next_question_ns_ = driver_.waiter().now_ns();
    while ((turn < count && failed == 0) || free.size() != kSlots) {
      while (turn < count && failed == 0 && !free.empty()) {
        const std::uint16_t slot = free.back();
        free.pop_back();
        turns[slot] = turn;
        start(opcode, slot, next(turn), [&](Buffer buffer) { before(turn, buffer); });
        ++turn;
      }
      pair_.ring_sq();
      const std::uint32_t reaped = pair_.reap(kSlots, [&](const nvme::Cqe& entry) {
        if (entry.cid >= kSlots) throw std::runtime_error("the device completed a command that nobody sent");
        const auto status = static_cast<std::uint16_t>(entry.status_phase >> 1);
        if (status != 0 && failed == 0) failed = status;
        if (status == 0) after(turns[entry.cid], buffer(entry.cid, next(turns[entry.cid]).bytes));
        free.push_back(entry.cid);
      });
      pair_.ring_cq();
      if (reaped != 0)
        last_answer_ns_ = driver_.waiter().now_ns();
      else if (!wait())
        break;
    }
    return failed;
  }

 private:
  Buffer buffer(std::uint16_t slot, std::uint32_t bytes) const {
    return {memory_.data() + std::size_t{piece_bytes_} * slot, bytes};
  }

  template <class Before>
  void start(nvme::NvmOpcode opcode, std::uint16_t slot, const Piece& piece, Before&& before) {
    const Buffer data = buffer(slot, piece.bytes);
    before(data);
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(opcode);
    sqe.cid = slot;
    sqe.nsid = ns_.nsid;
    sqe.cdw10 = static_cast<std::uint32_t>(piece.lba);
    sqe.cdw11 = static_cast<std::uint32_t>(piece.lba >> 32);
    sqe.cdw12 = (piece.bytes >> ns_.lba_shift) - 1;
    lists_.describe(slot, sqe, reinterpret_cast<std::uint64_t>(data.data()), piece.bytes);
    pair_.submit() = sqe;
  }

  // False: whoever waits has had enough.
  bool wait() {
    driver_.waiter().pump();
    const std::uint64_t now_ns = driver_.waiter().now_ns();
    const std::uint64_t silent_ns = now_ns - last_answer_ns_;
    if (silent_ns < std::min(kSilenceNs, patience_.silence_ns)) return true;
    if (patience_.cancelled) return false;
    if (silent_ns > patience_.silence_ns)
      throw driver::NvmeTimeout("the device has answered nothing for " + std::to_string(silent_ns / 1'000'000) +
                                " ms while its store was prepared: it loses commands, or hangs");
    if (now_ns >= next_question_ns_) {
      if (driver_.fatal())
        throw std::runtime_error("the device is gone: it stopped answering while its store was prepared");
      next_question_ns_ = now_ns + kSilenceNs;
    }
    std::this_thread::sleep_for(kRareLook);
    return true;
  }

  driver::NvmeDriver& driver_;
  const DoorNamespace& ns_;
  const Patience patience_;
  std::uint64_t last_answer_ns_ = 0;
  std::uint64_t next_question_ns_ = 0;
  std::uint32_t piece_bytes_;
  driver::DmaMemory memory_;
  driver::PrpLists lists_;
  driver::QueuePair& pair_;
};

// What blocks spread over a namespace hold.
struct Samples {
  bool generation_0 = true;  // every one is what a fill would write
  bool ours_or_zero = true;  // every one is zero or content of some run
};

void look_at(std::span<const std::byte> data, std::uint64_t first_sector, const DoorNamespace& ns, std::uint64_t seed,
             Samples& samples) {
  for (std::size_t at = 0; at < data.size(); at += media::kSectorBytes) {
    const auto sector = data.subspan(at, media::kSectorBytes);
    const bool zero = std::ranges::all_of(sector, [](std::byte b) { return b == std::byte{0}; });
    const auto identity = media::identify_block(sector);
    const media::BlockIdentity fresh{first_sector + at / media::kSectorBytes, ns.nsid, 0, seed};
    if (zero || identity != fresh) samples.generation_0 = false;
    if (!zero && !identity) samples.ours_or_zero = false;
  }
}

Samples take_samples(driver::NvmeDriver& driver, const DoorNamespace& ns, std::uint64_t seed,
                     const Patience& patience) {
  const std::uint64_t blocks = ns.bytes >> ns.lba_shift;
  const std::uint64_t count = std::min(kSamples, blocks);
  const auto lba = [&](std::uint64_t turn) {
    // The last one is the namespace's last block; the product stays below 2^64: 2^10 samples of 2^55 blocks.
    return count == 1 ? 0 : turn * ((blocks - 1) / (count - 1)) + turn * ((blocks - 1) % (count - 1)) / (count - 1);
  };
  Samples samples;
  StoreIo io(driver, ns, 1u << ns.lba_shift, {std::min(patience.silence_ns, kSamplePatienceNs), patience.cancelled});
  const std::uint16_t status = io.run(
      nvme::NvmOpcode::read, count, [&](std::uint64_t turn) { return Piece{lba(turn), 1u << ns.lba_shift}; },
      [](std::uint64_t, StoreIo::Buffer) {},
      [&](std::uint64_t turn, StoreIo::Buffer data) {
        look_at(data, lba(turn) << (ns.lba_shift - media::kSectorShift), ns, seed, samples);
      });
  if (status != 0) samples = {false, false};
  return samples;
}

// Of a controller that does not say it, NVM.
nvme::Csi command_set_of(driver::NvmeDriver& driver, std::uint32_t nsid) {
  std::array<std::uint8_t, nvme::kIdentifyBytes> list{};
  try {
    driver.identify(static_cast<std::uint8_t>(nvme::Cns::namespace_identification_descriptors), nsid,
                    std::as_writable_bytes(std::span(list)));
  } catch (const driver::NvmeError&) {
    return nvme::Csi::nvm;
  }
  return nvme::command_set_in(list);
}

}  // namespace

DoorNamespace examine_namespace(driver::NvmeDriver& driver) {
  std::array<std::uint32_t, 1024> active{};
  driver.identify(0x02, 0, std::as_writable_bytes(std::span(active)));
  if (active[0] == 0) throw ConfigError("the controller has no active namespace: attach one, or serve an SSD with one");
  nvme::IdentifyController controller{};
  driver.identify(0x01, 0, std::as_writable_bytes(std::span(&controller, 1)));
  nvme::IdentifyNamespace id{};
  driver.identify(0x00, active[0], std::as_writable_bytes(std::span(&id, 1)));
  const auto& format = id.lbaf[id.flbas & 0xF];
  if (format.lbads < media::kSectorShift || format.lbads > 12 || format.ms != 0)
    throw ConfigError("namespace " + std::to_string(active[0]) +
                      ": the load generator knows blocks of 512 to 4096 bytes without metadata; format it so");
  DoorNamespace ns;
  ns.nsid = active[0];
  ns.lba_shift = format.lbads;
  ns.bytes = id.nsze << format.lbads;
  ns.csi = command_set_of(driver, ns.nsid);
  ns.max_transfer_bytes = kMaxTransferBytes;
  // MDTS counts in pages of CAP.MPSMIN, which is 4096 for every controller that the driver accepts.
  if (controller.mdts != 0 && controller.mdts < 8) ns.max_transfer_bytes = 4096u << controller.mdts;
  return ns;
}

load::TruthSource prepare_store(driver::NvmeDriver& driver, const DoorNamespace& ns, std::uint64_t seed, bool fill,
                                std::atomic<double>& fraction, const Patience& patience) {
  using load::TruthSource;
  Samples samples{false, false};
  try {
    samples = take_samples(driver, ns, seed, patience);
  } catch (const driver::NvmeTimeout&) {
    // A device that loses commands can be measured all the same; what it holds is not known.
  }
  if (!fill || !samples.ours_or_zero) return TruthSource::none;
  // A store too large to fill may still be one that cannot be written, and holds what it shows everywhere.
  const bool too_large = ns.bytes > fillable_bytes();
  if (too_large && !samples.generation_0) return TruthSource::none;
  const std::uint32_t piece_bytes = std::min(kChunkBytes, ns.max_transfer_bytes);
  const std::uint64_t pieces = (ns.bytes + piece_bytes - 1) / piece_bytes;
  std::uint16_t status = 0;
  {
    StoreIo io(driver, ns, piece_bytes, patience);
    std::uint64_t done = 0;
    const auto piece = [&](std::uint64_t turn) {
      const std::uint64_t at = turn * piece_bytes;
      return Piece{at >> ns.lba_shift, static_cast<std::uint32_t>(std::min<std::uint64_t>(piece_bytes, ns.bytes - at))};
    };
    const auto write = [&](std::uint64_t first, std::uint64_t count) {
      return io.run(
          nvme::NvmOpcode::write, count, [&](std::uint64_t turn) { return piece(first + turn); },
          [&](std::uint64_t turn, StoreIo::Buffer data) {
            const std::uint64_t sector = (first + turn) * piece_bytes / media::kSectorBytes;
            media::fill_sectors(data, sector, ns.nsid, 0, seed);
          },
          // Counted, because completions come in any order.
          [&](std::uint64_t, StoreIo::Buffer) {
            fraction = static_cast<double>(++done) / static_cast<double>(pieces);
          });
    };
    // The first piece alone tells whether the store can be written at all; then in runs that a cancel can end.
    constexpr std::uint64_t kRun = 1024;
    for (std::uint64_t first = 0; first < (too_large ? 1 : pieces) && status == 0 && !patience.cancelled;) {
      const std::uint64_t count = first == 0 ? 1 : std::min(kRun, pieces - first);
      status = write(first, count);
      first += count;
    }
  }
  fraction = 1;
  if (patience.cancelled) return TruthSource::none;
  const auto code = static_cast<nvme::Status>(status & kStatusCodeMask);
  if (code == nvme::Status::namespace_is_write_protected)
    return samples.generation_0 ? TruthSource::content : TruthSource::none;
  if (status != 0)
    throw std::runtime_error("the store cannot be filled (a write ended with " + driver::status_text(status) +
                             "); leave out --verify and use --no-fill");
  return too_large ? TruthSource::none : TruthSource::content;
}

}  // namespace flashmob::api
