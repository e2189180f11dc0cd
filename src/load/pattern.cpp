#include "load/pattern.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include "base/check.h"

namespace flashmob::load {
namespace {

constexpr std::uint32_t kMaxBlocks = 65536;  // NLB is a 16-bit field counted from zero
constexpr std::size_t kMaxSizes = 256;
constexpr double kMaxTheta = 5.0;
// Steps per power of two of ranks: at 32 fewer than 2 % of the draws are rejected for theta = 1, 8 % for theta = 5.
constexpr unsigned kStepBits = 5;

[[noreturn]] void reject(const std::string& option, const std::string& value, const std::string& fix) {
  throw ConfigError(option + " = " + value + " is not possible: " + fix);
}

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

}  // namespace

AliasTable::AliasTable(const std::vector<double>& weights) : cells_(weights.size()) {
  FLASHMOB_CHECK(!weights.empty());
  double sum = 0;
  for (const double weight : weights) sum += weight;
  // Shares are scaled so that the average is 1; each cell too small is filled up from one too large.
  std::vector<double> share(weights.size());
  std::vector<std::uint32_t> small, large;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    share[i] = weights[i] / sum * static_cast<double>(weights.size());
    (share[i] < 1.0 ? small : large).push_back(static_cast<std::uint32_t>(i));
  }
  for (auto& cell : cells_) cell = {~std::uint64_t{0}, 0};
  while (!small.empty() && !large.empty()) {
    const std::uint32_t receiver = small.back(), giver = large.back();
    small.pop_back();
    cells_[receiver] = {static_cast<std::uint64_t>(share[receiver] * 0x1.0p64), giver};
    share[giver] -= 1.0 - share[receiver];
    if (share[giver] < 1.0) {
      large.pop_back();
      small.push_back(giver);
    }
  }
}

ZipfSampler::ZipfSampler(std::uint64_t count, double theta) : theta_(theta) {
  FLASHMOB_CHECK(count >= 1 && theta > 0.0);
  std::vector<double> weights;
  for (std::uint64_t first = 1; first <= count;) {
    const unsigned magnitude = static_cast<unsigned>(std::bit_width(first)) - 1;
    const std::uint64_t step = magnitude > kStepBits ? std::uint64_t{1} << (magnitude - kStepBits) : 1;
    const std::uint64_t width = std::min(step, count - first + 1);
    const double height = std::pow(static_cast<double>(first), -theta);
    const double last = static_cast<double>(first + width - 1);
    steps_.push_back({first, width, std::pow(static_cast<double>(first) / last, theta)});
    // A weight that underflows to zero would never be drawn anyway; keep the table's weights positive.
    weights.push_back(std::max(height * static_cast<double>(width), 1e-300));
    first += width;
  }
  pick_ = AliasTable(weights);
}

std::uint64_t ZipfSampler::draw(Rng& rng) const {
  for (;;) {
    const Step& step = steps_[pick_.draw(rng)];
    if (step.width == 1) return step.first - 1;
    const std::uint64_t rank = step.first + rng.below(step.width);
    const double u = rng.unit();
    if (u < step.sure) return rank - 1;
    // The step is as high as its first rank; accept each rank in proportion to its own height.
    if (u < std::pow(static_cast<double>(step.first) / static_cast<double>(rank), theta_)) return rank - 1;
  }
}

Scatter::Scatter(std::uint64_t count, std::uint64_t seed) : count_(count) {
  FLASHMOB_CHECK(count >= 1);
  const unsigned bits = count > 1 ? static_cast<unsigned>(std::bit_width(count - 1)) : 0;
  mask_ = bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
  shift_ = bits / 2 + 1;
  for (int round = 0; round < kRounds; ++round) {
    seed = splitmix64(seed);
    multiplier_[round] = seed | 1;
    seed = splitmix64(seed);
    offset_[round] = seed;
  }
}

std::uint64_t Scatter::operator()(std::uint64_t index) const {
  // Adding, multiplying by an odd number and xoring with a right shift are each invertible within the mask.
  do {
    for (int round = 0; round < kRounds; ++round) {
      index = ((index + offset_[round]) * multiplier_[round]) & mask_;
      index ^= index >> shift_;
    }
  } while (index >= count_);
  return index;
}

Pattern::Pattern(const PatternConfig& config, Rng rng) : rng_(rng) {
  FLASHMOB_CHECK(config.stream_count >= 1 && config.stream_index < config.stream_count);
  parse_rw(config);
  parse_sizes(config);
  parse_distribution(config);
  if (shape_ == Shape::sequential) place_stream(config);
  choose_handles(config);
  const bool one_direction = read_share_ == 0.0 || read_share_ == 1.0;
  plain_ = shape_ == Shape::uniform && sizes_.size() == 1 && one_direction;
  plain_write_ = read_share_ == 0.0;
}

void Pattern::parse_rw(const PatternConfig& config) {
  const std::string& rw = config.rw;
  if (rw == "read" || rw == "randread") {
    read_share_ = 1.0;
  } else if (rw == "write" || rw == "randwrite") {
    read_share_ = 0.0;
  } else if (rw == "rw" || rw == "randrw") {
    if (!(config.read_share >= 0.0 && config.read_share <= 1.0)) {
      reject("read_share", std::to_string(config.read_share), "use a share of reads from 0 to 1");
    }
    read_share_ = config.read_share;
  } else {
    reject("rw", "\"" + rw + "\"", "use read, write, randread, randwrite, rw or randrw");
  }
  shape_ = rw.starts_with("rand") ? Shape::uniform : Shape::sequential;
}

void Pattern::parse_sizes(const PatternConfig& config) {
  const std::uint64_t lba_bytes = std::uint64_t{1} << config.lba_shift;
  const std::size_t count = config.block_sizes.size();
  if (count == 0 || count > kMaxSizes) {
    reject("block_sizes", "a list of " + std::to_string(count), "give 1 to " + std::to_string(kMaxSizes) + " sizes");
  }
  std::vector<double> weights;
  for (const BlockSizeShare& size : config.block_sizes) {
    const std::uint64_t blocks = size.bytes / lba_bytes;
    if (blocks == 0 || size.bytes % lba_bytes != 0) {
      reject("block_sizes", std::to_string(size.bytes),
             "use multiples of the namespace's LBA size, " + std::to_string(lba_bytes) + " bytes");
    }
    if (blocks > kMaxBlocks) {
      reject("block_sizes", std::to_string(size.bytes),
             "one command moves at most " + std::to_string(kMaxBlocks * lba_bytes) + " bytes");
    }
    if (blocks > config.namespace_blocks) {
      reject("block_sizes", std::to_string(size.bytes),
             "use at most the namespace's size, " + std::to_string(config.namespace_blocks * lba_bytes) + " bytes");
    }
    if (!(std::isfinite(size.weight) && size.weight > 0.0)) {
      reject("block_sizes", std::to_string(size.bytes) + " with weight " + std::to_string(size.weight),
             "use finite weights above 0");
    }
    weights.push_back(size.weight);
    sizes_.push_back({static_cast<std::uint32_t>(blocks), 0, config.namespace_blocks / blocks});
    largest_blocks_ = std::max(largest_blocks_, static_cast<std::uint32_t>(blocks));
  }
  // Dividing by the largest first keeps the table's sum finite whatever the weights.
  const double top = *std::max_element(weights.begin(), weights.end());
  for (double& weight : weights) weight = std::max(weight / top, 1e-300);
  for (Size& size : sizes_) size.pieces = largest_blocks_ / size.blocks;
  pick_size_ = AliasTable(weights);
  slots_ = config.namespace_blocks / largest_blocks_;
}

void Pattern::parse_distribution(const PatternConfig& config) {
  const std::string_view text = config.distribution;
  const auto bad = [&] {
    reject("distribution", "\"" + config.distribution + "\"",
           "use uniform, zipf:THETA with THETA above 0 and up to 5, or hotcold:IO:SPACE with IO from 0 to 1 and SPACE "
           "above 0 and up to 1, such as hotcold:0.9:0.1");
  };
  if (text == "uniform") return;
  const std::size_t first_colon = text.find(':');
  const std::string_view name = text.substr(0, first_colon);
  const std::string_view rest = first_colon == std::string_view::npos ? "" : text.substr(first_colon + 1);
  Shape shape = Shape::uniform;
  if (name == "zipf") {
    const auto theta = parse_number(rest);
    if (!theta || !(*theta > 0.0 && *theta <= kMaxTheta)) bad();
    shape = Shape::zipf;
    zipf_ = ZipfSampler(slots_, *theta);
    scatter_ = Scatter(slots_, config.placement_seed);
  } else if (name == "hotcold" && rest.find(':') != std::string_view::npos) {
    const auto io = parse_number(rest.substr(0, rest.find(':')));
    const auto space = parse_number(rest.substr(rest.find(':') + 1));
    if (!io || !space || !(*io >= 0.0 && *io <= 1.0 && *space > 0.0 && *space <= 1.0)) bad();
    shape = Shape::hotcold;
    hot_io_ = *io;
    hot_slots_ = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(*space * static_cast<double>(slots_)), 1, slots_);
  } else {
    bad();
  }
  if (shape_ == Shape::sequential) {
    reject("distribution", "\"" + config.distribution + "\"",
           "rw = " + config.rw + " is sequential; use distribution = uniform, or randread, randwrite or randrw");
  }
  shape_ = shape;
}

void Pattern::place_stream(const PatternConfig& config) {
  const auto slot_at = [&](std::uint64_t index) {
    return static_cast<std::uint64_t>(static_cast<unsigned __int128>(slots_) * index / config.stream_count);
  };
  std::uint64_t begin = slot_at(config.stream_index);
  std::uint64_t end = slot_at(std::uint64_t{config.stream_index} + 1);
  // More streams than slots: they have to share them.
  if (begin == end) {
    begin = config.stream_index % slots_;
    end = begin + 1;
  }
  share_begin_ = begin * largest_blocks_;
  share_end_ = end * largest_blocks_;
  cursor_ = share_begin_;
}

void Pattern::choose_handles(const PatternConfig& config) {
  if (config.placement_handles == 0) return;
  places_ = true;
  if (shape_ != Shape::hotcold) {
    handle_ = static_cast<std::uint16_t>(config.stream_index % config.placement_handles);
    return;
  }
  hot_end_ = hot_slots_ * largest_blocks_;
  hot_handle_ = config.placement_handles > 1 ? 1 : 0;
}

std::uint64_t Pattern::next_slot() {
  if (shape_ == Shape::zipf) return scatter_(zipf_.draw(rng_));
  const bool hot = hot_slots_ == slots_ || rng_.unit() < hot_io_;
  return hot ? rng_.below(hot_slots_) : hot_slots_ + rng_.below(slots_ - hot_slots_);
}

Io Pattern::next_general() {
  const Size& size = sizes_.size() == 1 ? sizes_[0] : sizes_[pick_size_.draw(rng_)];
  const bool is_write = read_share_ < 1.0 && rng_.unit() >= read_share_;
  if (shape_ == Shape::sequential) {
    if (size.blocks > share_end_ - cursor_) cursor_ = share_begin_;
    const std::uint64_t slba = cursor_;
    cursor_ += size.blocks;
    return {slba, size.blocks, is_write};
  }
  if (shape_ == Shape::uniform) return {rng_.below(size.slots) * size.blocks, size.blocks, is_write};
  std::uint64_t slba = next_slot() * largest_blocks_;
  if (size.pieces > 1) slba += rng_.below(size.pieces) * size.blocks;
  return {slba, size.blocks, is_write};
}

}  // namespace flashmob::load
