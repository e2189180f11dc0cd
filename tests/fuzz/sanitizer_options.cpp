// What AddressSanitizer does in the fuzz targets' programs, unless ASAN_OPTIONS says otherwise. An input's objects do
// not outlive it, so that a quarantine of some inputs' memory finds every use after free that a larger one would; in a
// larger one, every allocation would be of pages never touched before, which takes longer than the input itself. Of who
// allocated what, one frame is noted: walking the stack and filing it took a tenth of an input's time, and an input
// that fails is run again with ASAN_OPTIONS=malloc_context_size=30.
// (In programs with fibres these stand in for what gpu/simt/fibre_stack.cpp says.)
#if defined(FLASHMOB_ASAN)
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() {
  return "quarantine_size_mb=8:allocator_release_to_os_interval_ms=-1:malloc_context_size=1"
#if defined(FLASHMOB_FUZZ_FIBRES)
         ":detect_stack_use_after_return=0"
#endif
      ;
}
#endif
