// What AddressSanitizer does in the fuzz targets' programs, unless ASAN_OPTIONS says otherwise. An input's objects do
// not outlive it, so that a quarantine of some inputs' memory finds every use after free that a larger one would; in a
// larger one, every allocation would be of pages never touched before, which takes longer than the input itself. Of who
// allocated what, one frame is noted: walking the stack and filing it took a tenth of an input's time, and an input
// that fails is run again with ASAN_OPTIONS=malloc_context_size=30.
// (In programs with fibres gpu/simt/fibre_stack.cpp asks for these.)
#if defined(FLASHMOB_ASAN)
#define FLASHMOB_FUZZ_ASAN_OPTIONS "quarantine_size_mb=8:allocator_release_to_os_interval_ms=-1:malloc_context_size=1"
extern "C" {
#if defined(FLASHMOB_FUZZ_FIBRES)
const char* flashmob_fibre_asan_options();
const char* flashmob_fibre_asan_options() { return FLASHMOB_FUZZ_ASAN_OPTIONS ":detect_stack_use_after_return=0"; }
#else
__attribute__((visibility("default"))) const char* __asan_default_options() { return FLASHMOB_FUZZ_ASAN_OPTIONS; }
#endif
}
#endif
