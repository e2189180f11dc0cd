// Mappings that the fuzz targets' programs make and give back for every input are kept from one input to the next: on
// small virtual machines each page that is touched anew costs two microseconds, and AddressSanitizer clears its own
// memory for every mapping, so that large rings alone took most of an input's time. The linker sends mmap(), munmap()
// and madvise() through kept_mappings.cpp (--wrap, see CMakeLists.txt).
//
// Nothing of this is seen by who maps: memory is zero when it is mapped again, what was given back may not be touched
// (AddressSanitizer reports it, in the first 256 KiB of a mapping), and regions whose addresses are hinted to be
// neighbours are neighbours. Any thread.
#pragma once

#include <cstdint>

namespace flashmob::fuzz {

// From here on. `bus_errors` counts how often a mapping's pages were replaced because its file had been cut short;
// such mappings are not kept.
void keep_mappings(std::uint64_t (*bus_errors)() = nullptr);

// Mappings of this file are kept too: it lives as long as the process.
void keep_mappings_of(int fd);

}  // namespace flashmob::fuzz
