#include "api/lease.h"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <string>

#include "base/rate_gate.h"
#include "flashmob/error.h"

namespace flashmob::api {
namespace {

// What one consumer has of the door.
ControllerConfig narrowed(const ControllerConfig& config, const LeaseOptions& options) {
  if (options.queue_pairs == 0 || options.queue_pairs > config.max_queue_pairs)
    throw ConfigError("queue_pairs = " + std::to_string(options.queue_pairs) + " is not possible; use 1 to " +
                      std::to_string(config.max_queue_pairs));
  ControllerConfig narrow = config;
  narrow.max_queue_pairs = options.queue_pairs;
  narrow.interrupt_vectors = std::min(config.interrupt_vectors, options.queue_pairs + 1);
  return narrow;
}

const std::string& in_its_folder(const std::string& path) {
  vfio::make_private_folder(std::filesystem::path(path).parent_path());
  return path;
}

}  // namespace

LeaseOptions Lease::of_whole(const LeaseOptions& options, controller::Subsystem& subsystem) {
  LeaseOptions whole = options;
  if (std::max(options.max_commands_per_s, options.max_bytes_per_s) > RateGate::kMaxRate)
    throw ConfigError("a rate beyond " + std::to_string(RateGate::kMaxRate) + " a second is none; leave it out");
  if (options.size_bytes != 0) return whole;
  const std::lock_guard lock(subsystem.mutex());
  if (!controller::is_valid_nsid(options.nsid)) return whole;
  const controller::NamespaceInfo& info = subsystem.info(options.nsid);
  if (info.current != nullptr && info.media->size_bytes() > options.first_byte)
    whole.size_bytes = info.media->size_bytes() - options.first_byte;
  return whole;
}

Lease::Lease(const LeaseOptions& options, ServedDevice& device, const ControllerConfig& config)
    : options_(options),
      engine_(device.engine()),
      subsystem_(controller::Window{.of = device.subsystem(),
                                    .nsid = options.nsid,
                                    .first_byte = options.first_byte,
                                    .size_bytes = options.size_bytes,
                                    .nqn = options.nqn,
                                    .serial = options.serial}),
      server_(subsystem_, device.engine(), narrowed(config, options), in_its_folder(options.vfio_user_path),
              door_options()) {}

transport::VfioUserOptions Lease::door_options() {
  return {.max_clients = 1,
          .rights = {.access = options_.is_read_only ? controller::Access::read_only : controller::Access::io,
                     .max_commands_per_s = options_.max_commands_per_s,
                     .max_bytes_per_s = options_.max_bytes_per_s},
          .only_user = options_.uid,
          .on_event = [this](const transport::VfioUserEvent& event) {
            using Kind = transport::VfioUserEvent::Kind;
            ++(event.kind == Kind::connected ? attached_ : event.kind == Kind::disconnected ? left_ : refused_);
          }};
}

// Two that may write would be one drive with two owners, and one that reads beside one that writes would read what
// nobody has promised it.
void Lease::check_beside(const LeaseOptions& other) const {
  const bool overlaps = options_.nsid == other.nsid && options_.first_byte < other.first_byte + other.size_bytes &&
                        other.first_byte < options_.first_byte + options_.size_bytes;
  if (overlaps && !(options_.is_read_only && other.is_read_only))
    throw ConfigError("these blocks are lent already (" + options_.name +
                      "); take others, or have both leases read-only");
}

bool Lease::is_forgotten() {
  const std::lock_guard lock(subsystem_.mutex());
  return !engine_.still_knows(*subsystem_.info(1).media);
}

LeaseStats Lease::stats() {
  LeaseStats stats;
  stats.name = options_.name;
  stats.uid = options_.uid;
  stats.nsid = options_.nsid;
  stats.first_byte = options_.first_byte;
  stats.size_bytes = options_.size_bytes;
  stats.queue_pairs = options_.queue_pairs;
  stats.is_read_only = options_.is_read_only;
  stats.attached_ever = attached_;
  stats.is_attached = stats.attached_ever != left_;
  stats.refused = refused_;
  const std::lock_guard lock(subsystem_.mutex());
  const controller::IoCounters io = subsystem_.counters();
  stats.read_commands = io.read_commands;
  stats.write_commands = io.write_commands;
  stats.read_bytes = io.read_bytes;
  stats.written_bytes = io.written_bytes;
  return stats;
}

}  // namespace flashmob::api
