// libFuzzer target: a hostile client of a gpu-socket before the engine's own kernel, on fibres. Each change that the
// host makes waits until all of the kernel's lanes have seen it, so this is slow, although lanes that have nothing to
// do look less often than elsewhere; what the session itself does with its client is gpu_socket_fuzz.
#include "fuzz/gpu_socket_client.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace flashmob::gpu;
  static fuzz::Server server([](const flashmob::DeviceConfig& config, const flashmob::Clock& clock) {
    return make_paced_machine(config, clock, {.longest_pause_ns = 4'000, .look_every_ns = 4'000});
  });
  if (size != 0) fuzz::play(server, data, size);
  return 0;
}
