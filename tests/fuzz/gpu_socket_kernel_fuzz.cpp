// libFuzzer target: a hostile client of a gpu-socket before the engine's own kernel, on fibres. Each change that the
// host makes waits until all of the kernel's lanes have seen it, so this is slow; what the session itself does with its
// client is gpu_socket_fuzz.
#include "fuzz/gpu_socket_client.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static flashmob::gpu::fuzz::Server server(flashmob::gpu::make_fibre_machine);
  if (size != 0) flashmob::gpu::fuzz::play(server, data, size);
  return 0;
}
