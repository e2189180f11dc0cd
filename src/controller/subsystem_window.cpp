// Parts of namespaces that are lent as drives of their own (docs/decisions/0022).
#include <algorithm>
#include <string>

#include "base/check.h"
#include "command_set/registry.h"
#include "controller/controller.h"
#include "controller/subsystem.h"
#include "media/window_media.h"

namespace flashmob::controller {

SubsystemConfig Subsystem::describe(const Window& window) {
  const std::lock_guard lock(window.of.mutex_);
  const NamespaceInfo& info = window.of.infos_[is_valid_nsid(window.nsid) ? window.nsid : 0];
  const std::string what = "the part of namespace " + std::to_string(window.nsid) + " that is to be lent";
  if (info.current == nullptr) throw ConfigError(what + " does not exist; name a namespace that the SSD has");
  if (info.current->command_set->csi() != nvme::Csi::nvm)
    throw ConfigError(what + " is of command set " + info.config.command_set + "; only nvm's can be lent in parts");
  if (info.config.media.starts_with("direct:"))
    throw ConfigError(what + " lies in " + info.config.media +
                      ", past the page cache, which cannot be lent in parts; use media file:PATH");
  const std::uint64_t grain = std::max<std::uint64_t>(info.current->lba_bytes(), window.of.timing_unit_bytes_);
  if (window.size_bytes == 0 || window.first_byte % grain != 0 || window.size_bytes % grain != 0)
    throw ConfigError(what + " must begin and end at multiples of " + std::to_string(grain) +
                      " bytes, and not be empty");
  const std::uint64_t all = info.media->size_bytes();
  if (window.first_byte > all || window.size_bytes > all - window.first_byte)
    throw ConfigError(what + " ends beyond its " + std::to_string(all) + " bytes; ask for less");
  SubsystemConfig config = window.of.config_;
  config.nqn = window.nqn;
  config.serial = window.serial;
  config.spare_capacity_bytes = 0;
  config.placement = {};
  config.namespaces = {info.config};
  config.namespaces[0].size_bytes = window.size_bytes;
  config.namespaces[0].lba_bytes = static_cast<std::uint32_t>(info.current->lba_bytes());
  config.namespaces[0].placement_handles.clear();
  config.namespaces[0].shared = true;
  config.validate();
  return config;
}

Subsystem::Subsystem(const Window& window)
    : config_(describe(window)),
      seed_(window.of.seed_),
      timing_unit_bytes_(window.of.timing_unit_bytes_),
      command_sets_(command_set::command_sets_of(config_)),
      unit_space_(window.of.infos_[window.nsid].unit_base + window.first_byte / timing_unit_bytes_),
      whole_(&window.of) {
  const std::lock_guard lock(whole_->mutex_);
  const NamespaceInfo& whole = whole_->infos_[window.nsid];
  const bool writable = whole.write_protection == nvme::WriteProtection::none;
  auto media = std::make_unique<media::WindowMedia>(*whole.media, window.first_byte, window.size_bytes, writable);
  total_capacity_bytes_ = media->size_bytes();
  install(1, config_.namespaces[0], std::move(media), true);
  lent_ = whole.current;
  lent_first_ = window.first_byte >> lent_->lba_shift;
  // What the whole knows to be unreadable is so here. How many marks a host may add is bounded, for they are returned
  // at once.
  const std::uint64_t end = lent_first_ + infos_[1].current->blocks;
  const std::vector<media::SavedRange> marks = lent_->uncorrectable.ranges();
  infos_[1].current->uncorrectable.limit(std::max<std::uint64_t>(media::kMaxSavedRanges, marks.size()));
  for (const media::SavedRange& range : marks) {
    const std::uint64_t from = std::max(range.first, lent_first_), to = std::min(range.first + range.blocks, end);
    if (from < to) FLASHMOB_CHECK(infos_[1].current->uncorrectable.insert(from - lent_first_, to - from));
  }
}

// What the window's hosts have marked unreadable, and written since, is so in the whole. Where there is no room for
// one mark more, its blocks are readable; where there is none to take one away, they are not.
void Subsystem::return_marks() {
  const command_set::Namespace& window = *infos_[1].current;
  if (!window.has_marks() && !lent_->uncorrectable.intersects(lent_first_, window.blocks)) return;
  (void)lent_->unmark(lent_first_, window.blocks);
  for (const media::SavedRange& range : window.uncorrectable.ranges())
    (void)lent_->mark(lent_first_ + range.first, range.blocks);
  if (lent_->marks_unsaved()) (void)lent_->save_marks();
}

// For whoever watches the whole. Its mutex is taken after a window's.
void Subsystem::note_served(Controller& controller) {
  if (whole_ != nullptr) {
    const std::lock_guard lock(whole_->mutex_);
    return whole_->note_served(controller);
  }
  served_.push_back(&controller);
  controller.arrival_ = ++controllers_added_;
}

void Subsystem::note_gone(Controller& controller, const IoCounters& counters) {
  if (whole_ != nullptr) {
    const std::lock_guard lock(whole_->mutex_);
    return whole_->note_gone(controller, counters);
  }
  removed_everywhere_.add(counters);
  std::erase(served_, &controller);
}

}  // namespace flashmob::controller
