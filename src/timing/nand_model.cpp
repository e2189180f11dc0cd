// The timing model `nand`: a drive (timing/nand/drive.h) behind the seam.
//
// Commands that write and free blocks beside Reads and Writes reach it where they are carried out (model.h). What comes
// to it late counts as fetched when the last one was: a drive's times do not run backwards.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <sstream>

#include "base/check.h"
#include "base/platform.h"
#include "timing/nand/config.h"
#include "timing/nand/drive.h"
#include "timing/nand/recent_writes.h"
#include "timing/registry.h"

namespace flashmob::timing {
namespace {

class NandModel final : public TimingModel, private StreamPlacement {
 public:
  NandModel(const TimingConfig& config, bool shared, const DeviceShape& shape)
      : params_(nand::params_of(config, shape.capacity_bytes, shape.seed, shape.streams)),
        // Who asks for its streams is on a thread of its own.
        shared_(shared || shape.streams.count > 1),
        path_ns_(config.path_ns),
        drive_(params_) {}

  void schedule(std::span<const Demand> batch, std::uint64_t now_ns, std::span<std::uint64_t> targets_ns) override {
    FLASHMOB_CHECK(targets_ns.size() == batch.size());
    const auto lock = exclusively();
    latest_ns_ = std::max(latest_ns_, now_ns);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const std::uint64_t done_ns = serve(batch[i], latest_ns_);
      targets_ns[i] = std::max(now_ns, done_ns - std::min(done_ns, path_ns_));
    }
  }

  void reset() override {
    drive_.forget_load();
    latest_ns_ = 0;
  }

  void set_path_ns(std::uint64_t path_ns) override { path_ns_ = path_ns; }

  std::string describe() const override {
    const nand::Geometry& g = params_.geometry;
    std::ostringstream text;
    text << "nand: " << g.channels << " channels with " << g.dies_per_channel << " dies of " << g.planes << " planes, "
         << g.superblocks << " superblocks of " << g.units_per_superblock() * g.unit_bytes << " bytes, unit "
         << g.unit_bytes << " bytes";
    return text.str();
  }

  std::uint64_t writes_scheduled() override {
    const auto lock = exclusively();
    return recent_.count();
  }

  void deallocate(std::uint64_t first_unit, std::uint64_t units, std::uint64_t writes) override {
    while (units != 0) {
      const std::uint64_t some = std::min(units, kUnitsAtOnce);
      {
        const auto lock = exclusively();
        each_stretch(first_unit, some, [&](nand::Unit first, std::uint32_t count) {
          recent_.each_untouched(first, count, writes,
                                 [this](nand::Unit from, std::uint32_t part) { drive_.deallocate(from, part); });
        });
      }
      first_unit += some;
      units -= some;
      if (units != 0) let_others_in();
    }
  }

  void assume_written(std::uint64_t first_unit, std::uint64_t units, const std::atomic<bool>* cancelled) override {
    each_stretch(first_unit, units, [this, cancelled](nand::Unit first, std::uint32_t count) {
      drive_.assume_written(first, count, cancelled);
    });
  }

  bool assume_steady(std::uint64_t first_unit, std::uint64_t units, const std::atomic<bool>* cancelled) override {
    // After twice the drive's size greedy cleaning has settled at the smallest spare space that there can be.
    constexpr double kDriveWrites = 4;
    FLASHMOB_CHECK(first_unit + units <= params_.capacity_units);
    drive_.assume_steady(static_cast<nand::Unit>(first_unit), static_cast<std::uint32_t>(units), kDriveWrites,
                         cancelled);
    return true;
  }

  std::unique_ptr<TimingModel> clone() const override {
    std::unique_ptr<NandModel> copy(new NandModel(*this));
    copy->reset();
    return copy;
  }

  StreamPlacement* placement() override { return params_.streams.count > 1 ? this : nullptr; }

  std::optional<FlashCounters> flash_counters() const override { return counted(); }

 private:
  NandModel(const NandModel& other)
      : params_(other.params_),
        shared_(false),
        path_ns_(other.path_ns_),
        recent_(other.recent_),
        drive_(other.drive_) {}

  std::uint64_t superblock_bytes() const override {
    return params_.geometry.units_per_superblock() * params_.geometry.unit_bytes;
  }
  std::uint64_t bytes_left(std::uint32_t stream) override {
    const auto lock = exclusively();
    return std::uint64_t{drive_.ftl().units_left(stream)} * params_.geometry.unit_bytes;
  }
  std::uint64_t next_superblock(std::uint32_t stream) override {
    const auto lock = exclusively();
    const std::uint32_t left = drive_.ftl().units_left(stream);
    drive_.next_superblock(stream, latest_ns_);
    return left == params_.geometry.units_per_superblock() ? 0 : std::uint64_t{left} * params_.geometry.unit_bytes;
  }
  FlashCounters counters() override {
    const auto lock = exclusively();
    return counted();
  }

  FlashCounters counted() const {
    const nand::Counters& counters = drive_.ftl().counters();
    const std::uint64_t unit_bytes = params_.geometry.unit_bytes;
    const nand::Wear wear = drive_.ftl().superblocks().wear();
    return FlashCounters{.host_written_bytes = counters.written_sectors * 512,
                         .joined_bytes = counters.joined_sectors * 512,
                         .filled_bytes = counters.filled_sectors * 512,
                         .moved_bytes = counters.moved_units * unit_bytes,
                         .padded_bytes = counters.padded_units * unit_bytes,
                         .erased_superblocks = counters.erased_superblocks,
                         .flash_reads = counters.flash_reads,
                         .buffer_reads = counters.buffer_reads,
                         .unwritten_reads = counters.unwritten_reads,
                         .cached_bytes = counters.cached_units * unit_bytes,
                         .idle_moved_bytes = counters.idle_moved_units * unit_bytes,
                         .levelled_superblocks = counters.levelled_superblocks,
                         .fewest_erases = wear.fewest,
                         .most_erases = wear.most,
                         .mean_erases = wear.mean};
  }

  std::unique_lock<std::mutex> exclusively() {
    if (!shared_) return {};
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) {
      waiting_.fetch_add(1, std::memory_order_relaxed);
      lock.lock();
      waiting_.fetch_sub(1, std::memory_order_relaxed);
    }
    return lock;
  }
  // A mutex goes to whoever is awake: those that wait for it have some time to wake.
  void let_others_in() const {
    for (int i = 0; i < kWakingPauses && waiting_.load(std::memory_order_relaxed) != 0; ++i) cpu_pause();
  }

  // Where hosts have cut the space of namespaces to pieces, a new one may lie beyond the map's end, and shares the
  // units of another: their data are apart all the same.
  template <class Visit>
  void each_stretch(std::uint64_t first_unit, std::uint64_t units, const Visit& visit) {
    const std::uint64_t all = params_.capacity_units;
    while (units != 0) {
      const std::uint64_t first = first_unit < all ? first_unit : first_unit % all;
      const std::uint64_t count = std::min(units, all - first);
      visit(static_cast<nand::Unit>(first), static_cast<std::uint32_t>(count));
      first_unit += count;
      units -= count;
    }
  }

  std::uint64_t serve(const Demand& demand, std::uint64_t now_ns) {
    if (demand.kind == DemandKind::flush) return drive_.flush(now_ns);
    if (demand.kind == DemandKind::immediate) return now_ns;
    std::uint64_t done_ns = now_ns;
    std::uint32_t bytes = std::uint32_t{demand.sectors} * 512;
    std::uint32_t begin_bytes = (demand.within & kFirstSectorMask) * 512u;
    const bool is_durable = (demand.within & kForceUnitAccess) != 0;
    const std::uint32_t stream = stream_of(demand) % params_.streams.count;
    each_stretch(demand.first_unit, units_of(demand), [&](nand::Unit first, std::uint32_t count) {
      const std::uint32_t moved = std::min(bytes, count * params_.geometry.unit_bytes - begin_bytes);
      bytes -= moved;
      if (demand.kind == DemandKind::read) {
        done_ns = std::max(done_ns, drive_.read(first, count, moved, now_ns));
      } else {
        recent_.note(first, count);
        done_ns = std::max(done_ns, drive_.write(first, count, moved, now_ns, begin_bytes, is_durable, stream));
      }
      begin_bytes = 0;
    });
    return done_ns;
  }

  // What is deallocated before others may have the drive: some hundred microseconds.
  static constexpr std::uint64_t kUnitsAtOnce = std::uint64_t{1} << 16;
  static constexpr int kWakingPauses = 1 << 14;

  const nand::Params params_;
  const bool shared_;
  std::mutex mutex_;  // taken where dispatchers share the model
  std::atomic<std::uint32_t> waiting_{0};  // for it
  std::uint64_t path_ns_;
  std::uint64_t latest_ns_ = 0;
  nand::RecentWrites recent_;
  nand::Drive drive_;
};

std::unique_ptr<TimingModel> make_nand(const TimingConfig& config, bool shared, const DeviceShape& shape) {
  return std::make_unique<NandModel>(config, shared, shape);
}

// The map's two directions; all else is small beside them.
std::uint64_t nand_memory_bytes(const TimingConfig& config, const DeviceShape& shape) {
  const nand::Params params = nand::params_of(config, shape.capacity_bytes, shape.seed, shape.streams);
  return params.capacity_units * sizeof(nand::Place) + params.geometry.physical_units() * sizeof(nand::Unit);
}

}  // namespace

const ModelEntry kNandModel{.name = "nand",
                            .check = nand::check,
                            .make = make_nand,
                            .is_timed = true,
                            .on_gpu = false,
                            .takes_nand = true,
                            .memory_bytes = nand_memory_bytes};

}  // namespace flashmob::timing
