#include "engine/io_server.h"

#include <map>
#include <utility>
namespace flashmob::engine {
namespace {

std::map<std::string, IoServerMaker>& makers() {
  static std::map<std::string, IoServerMaker> registered;
  return registered;
}

}  // namespace

void register_io_server(const std::string& kind, IoServerMaker maker) { makers()[kind] = std::move(maker); }

std::unique_ptr<IoServer> make_io_server(const DeviceConfig& config, const Clock& clock) {
  const auto found = makers().find(config.engine.kind);
  return found == makers().end() ? nullptr : found->second(config, clock);
}

}  // namespace flashmob::engine
