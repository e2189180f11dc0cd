// libFuzzer target: XFS file systems of a stranger (volume_fuzz.h says how the input makes one).
#include "fuzz/volume_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  flashmob::fuzz::fuzz_volume(data, size, 0, "XFSB");
  return 0;
}
