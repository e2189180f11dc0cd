// The timing model `none`: every request is done when it is fetched, the device as fast as the machine can emulate it.
#include <algorithm>

#include "base/check.h"
#include "timing/registry.h"

namespace flashmob::timing {
namespace {

class NoneModel final : public TimingModel {
 public:
  void schedule(std::span<const Demand> batch, std::uint64_t now_ns, std::span<std::uint64_t> targets_ns) override {
    FLASHMOB_CHECK(targets_ns.size() == batch.size());
    std::fill(targets_ns.begin(), targets_ns.end(), now_ns);
  }
  void reset() override {}
  void set_path_ns(std::uint64_t) override {}
  std::string describe() const override { return "none"; }
};

void check_none(const TimingConfig& /*config*/) {}

std::unique_ptr<TimingModel> make_none(const TimingConfig& /*config*/, bool /*shared*/, const DeviceShape& /*shape*/) {
  return std::make_unique<NoneModel>();
}

}  // namespace

const ModelEntry kNoneModel{
    .name = "none",
    .check = check_none,
    .make = make_none,
    .is_timed = false,
    .on_gpu = true,
};

}  // namespace flashmob::timing
