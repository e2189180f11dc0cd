// The features that hosts save with Set Features, of all controllers of a drive, on their way to the disk. However many
// hosts wait, and however slow the disk is: whoever has it write takes along what all others wait for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "controller/queue_host.h"
#include "media/saved_state.h"

namespace flashmob::controller {

class FeatureSaves : public std::enable_shared_from_this<FeatureSaves> {
 public:
  explicit FeatureSaves(std::shared_ptr<media::StateKeeper> keeper) : keeper_(std::move(keeper)) {}

  // What saves one more, in place of what it overrides, after those that were added before it. Nobody saves what has
  // been dropped before it ran. Any thread, but each such function is called by one at a time.
  std::function<DiskDone()> add(const media::SavedFeature& feature);
  std::vector<media::SavedFeature> saved() const { return keeper_->state().features; }

 private:
  struct Entry {
    media::SavedFeature feature;
    bool is_done = false;  // both guarded by saving_mutex_
    bool good = false;
  };
  void save_all();

  const std::shared_ptr<media::StateKeeper> keeper_;
  std::mutex saving_mutex_;  // held while the disk is waited for; taken before mutex_
  std::mutex mutex_;  // never held while a disk is waited for
  std::vector<std::weak_ptr<Entry>> waiting_;  // in the order in which they were added
};

}  // namespace flashmob::controller
