#include "engine/io_server.h"

#include <map>
#include <utility>

#include "base/check.h"

namespace flashmob::engine {
namespace {

std::map<std::string, IoServerMaker>& makers() {
  static std::map<std::string, IoServerMaker> registered;
  return registered;
}

}  // namespace

void register_io_server(const std::string& kind, IoServerMaker maker) { makers()[kind] = std::move(maker); }

std::unique_ptr<IoServer> make_io_server(const DeviceConfig& config, const Clock& clock) {
  const std::string& kind = config.engine.kind;
  if (kind == "host") return nullptr;
  const auto found = makers().find(kind);
  if (found == makers().end())
    throw ConfigError("engine.kind = \"" + kind +
                      "\" is not possible: this program has no such engine; use \"host\", or call "
                      "flashmob::gpu::enable_engine() first");
  return found->second(config, clock);
}

}  // namespace flashmob::engine
