#include "controller/feature_saves.h"

#include <utility>

#include "nvme/features.h"
#include "nvme/identify.h"

namespace flashmob::controller {
namespace {

bool overrides(const media::SavedFeature& feature, const media::SavedFeature& old) {
  constexpr std::uint32_t kThresholdSelect = 3u << 20;  // which of the two thresholds
  const bool same_value = feature.fid != static_cast<std::uint32_t>(nvme::Feature::temperature_threshold) ||
                          ((old.cdw11 ^ feature.cdw11) & kThresholdSelect) == 0;
  return old.fid == feature.fid && same_value && (old.nsid == feature.nsid || feature.nsid == nvme::kNsidBroadcast);
}

}  // namespace

std::function<DiskDone()> FeatureSaves::add(const media::SavedFeature& feature) {
  auto entry = std::make_shared<Entry>(Entry{.feature = feature});
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(waiting_, [](const auto& one) { return one.expired(); });
    waiting_.push_back(entry);
  }
  return [self = shared_from_this(), entry = std::move(entry)] {
    const std::lock_guard one_at_a_time(self->saving_mutex_);
    const bool waits = !entry->is_done;
    if (waits) self->save_all();
    return DiskDone{.good = entry->good, .waited = waits};
  };
}

void FeatureSaves::save_all() {
  std::vector<std::shared_ptr<Entry>> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& one : std::exchange(waiting_, {}))
      if (auto held = one.lock()) all.push_back(std::move(held));
  }
  const bool good = keeper_->change([&](media::SavedState& state) {
    for (const auto& one : all) {
      std::erase_if(state.features, [&](const media::SavedFeature& old) { return overrides(one->feature, old); });
      state.features.push_back(one->feature);
    }
  });
  for (const auto& one : all) {
    one->is_done = true;
    one->good = good;
  }
}

}  // namespace flashmob::controller
