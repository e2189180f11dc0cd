#include "api/door_store.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/fill.h"
#include "base/check.h"
#include "driver/block_queue.h"
#include "driver/names.h"
#include "media/block_content.h"
#include "nvme/io_commands.h"
#include "nvme/opcode.h"

namespace flashmob::api {
namespace {

constexpr std::uint32_t kSlots = 32;
constexpr std::uint32_t kChunkBytes = 128 * 1024;
constexpr std::uint64_t kSamples = 1024;
constexpr std::uint32_t kMaxTransferBytes = 1 << 20;
// Without an answer for this long looks become rare, and a wait may be given up.
constexpr std::uint64_t kSilenceNs = 500'000'000;
constexpr std::chrono::milliseconds kRareLook{1};
// To give up looking at samples costs no more than the verification of reads, so it does not take long.
constexpr std::uint64_t kSamplePatienceNs = 5'000'000'000;
constexpr std::uint16_t kStatusCodeMask = 0x7FF;

struct Piece {
  std::uint64_t lba;
  std::uint32_t bytes;
};

// Thrown through a wait that nobody wants any longer.
struct Cancelled {};

// Reads or writes many pieces of a namespace, kSlots of them at once, on a queue pair of its own.
class StoreIo {
 public:
  using Buffer = std::span<std::byte>;

  StoreIo(driver::NvmeDriver& driver, const DoorNamespace& ns, std::uint32_t piece_bytes, const Patience& patience)
      : ns_(ns.blocks),
        patience_(patience),
        queue_(driver, {.slots = kSlots,
                        .slot_bytes = std::max(piece_bytes, 4096u),
                        .idle = [this](std::uint64_t silent_ns) { wait(silent_ns); }}) {
    queue_.timeout_ns = patience.silence_ns;
  }

  // `next` answers the piece of each turn 0, 1, ... `before` fills a write's buffer, `after` sees a read's. Returns the
  // first failing status, 0 if there is none; then nothing more is started. Throws NvmeTimeout when patience ends.
  std::uint16_t run(nvme::NvmOpcode opcode, std::uint64_t count, const std::function<Piece(std::uint64_t)>& next,
                    const std::function<void(std::uint64_t, Buffer)>& before,
                    const std::function<void(std::uint64_t, Buffer)>& after) {
    std::uint16_t failed = 0;
    try {
      for (std::uint64_t turn = 0; turn < count; ++turn) {
        queue_.wait_until([&] { return failed != 0 || queue_.has_slot(); });
        if (failed != 0) break;
        const std::uint16_t slot = queue_.take_slot();
        const Piece piece = next(turn);
        const Buffer data = queue_.buffer(slot, piece.bytes);
        before(turn, data);
        queue_.submit(slot, opcode, ns_, piece.lba, piece.bytes, [&, turn, data](std::uint16_t status) {
          if (status == 0) return after(turn, data);
          if (failed == 0) failed = status;
        });
      }
      queue_.wait_until([&] { return queue_.outstanding() == 0; });
    } catch (const Cancelled&) {
      // What is in flight ends with the queue, before anybody looks at its completions.
    }
    return failed;
  }

 private:
  void wait(std::uint64_t silent_ns) {
    if (silent_ns >= std::min(kSilenceNs, patience_.silence_ns)) {
      if (patience_.cancelled) throw Cancelled();
      std::this_thread::sleep_for(kRareLook);
    }
    queue_.default_idle(silent_ns);
  }

  const driver::BlockNamespace ns_;
  const Patience patience_;
  driver::BlockQueue queue_;
};

// What blocks spread over a namespace hold.
struct Samples {
  bool generation_0 = true;  // every one is what a fill would write
  bool ours_or_zero = true;  // every one is zero or content of some run
};

void look_at(std::span<const std::byte> data, std::uint64_t first_sector, std::uint32_t nsid, std::uint64_t seed,
             Samples& samples) {
  for (std::size_t at = 0; at < data.size(); at += media::kSectorBytes) {
    const auto sector = data.subspan(at, media::kSectorBytes);
    const bool zero = std::ranges::all_of(sector, [](std::byte b) { return b == std::byte{0}; });
    const auto identity = media::identify_block(sector);
    const media::BlockIdentity fresh{first_sector + at / media::kSectorBytes, nsid, 0, seed};
    if (zero || identity != fresh) samples.generation_0 = false;
    if (!zero && !identity) samples.ours_or_zero = false;
  }
}

Samples take_samples(driver::NvmeDriver& driver, const DoorNamespace& ns, std::uint64_t seed,
                     const Patience& patience) {
  const auto [blocks, lba_shift] = std::pair(ns.blocks.blocks, ns.blocks.lba_shift);
  const std::uint64_t count = std::min(kSamples, blocks);
  const auto lba = [&](std::uint64_t turn) {
    // The last one is the namespace's last block; the product stays below 2^64: 2^10 samples of 2^55 blocks.
    return count == 1 ? 0 : turn * ((blocks - 1) / (count - 1)) + turn * ((blocks - 1) % (count - 1)) / (count - 1);
  };
  Samples samples;
  StoreIo io(driver, ns, 1u << lba_shift, {std::min(patience.silence_ns, kSamplePatienceNs), patience.cancelled});
  const std::uint16_t status = io.run(
      nvme::NvmOpcode::read, count, [&](std::uint64_t turn) { return Piece{lba(turn), 1u << lba_shift}; },
      [](std::uint64_t, StoreIo::Buffer) {},
      [&](std::uint64_t turn, StoreIo::Buffer data) {
        look_at(data, lba(turn) << (lba_shift - media::kSectorShift), ns.blocks.nsid, seed, samples);
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
  const std::vector<std::uint32_t> active = driver::active_namespaces(driver);
  if (active.empty()) throw ConfigError("the controller has no active namespace: attach one, or serve an SSD with one");
  const nvme::Csi csi = command_set_of(driver, active.front());
  if (csi == nvme::Csi::key_value)
    throw ConfigError("namespace " + std::to_string(active.front()) +
                      " holds keys and values: the load generator is for namespaces of blocks");
  const driver::BlockNamespace found = driver::identify_namespace(driver, active.front());
  if (found.lba_shift < media::kSectorShift || found.lba_shift > 12 || found.metadata_bytes != 0)
    throw ConfigError("namespace " + std::to_string(found.nsid) +
                      ": the load generator knows blocks of 512 to 4096 bytes without metadata; format it so");
  const std::uint64_t limit = std::min<std::uint64_t>(kMaxTransferBytes, driver::max_transfer_bytes(driver));
  return {found, static_cast<std::uint32_t>(limit), csi};
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
  const std::uint64_t bytes = ns.blocks.bytes();
  const bool too_large = bytes > fillable_bytes();
  if (too_large && !samples.generation_0) return TruthSource::none;
  const std::uint32_t piece_bytes = std::min(kChunkBytes, ns.max_transfer_bytes);
  const std::uint64_t pieces = (bytes + piece_bytes - 1) / piece_bytes;
  std::uint16_t status = 0;
  {
    StoreIo io(driver, ns, piece_bytes, patience);
    std::uint64_t done = 0;
    const auto piece = [&](std::uint64_t turn) {
      const std::uint64_t at = turn * piece_bytes;
      return Piece{at >> ns.blocks.lba_shift,
                   static_cast<std::uint32_t>(std::min<std::uint64_t>(piece_bytes, bytes - at))};
    };
    const auto write = [&](std::uint64_t first, std::uint64_t count) {
      return io.run(
          nvme::NvmOpcode::write, count, [&](std::uint64_t turn) { return piece(first + turn); },
          [&](std::uint64_t turn, StoreIo::Buffer data) {
            const std::uint64_t sector = (first + turn) * piece_bytes / media::kSectorBytes;
            media::fill_sectors(data, sector, ns.blocks.nsid, 0, seed);
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
