// The files in memory that a fuzz target's code makes and closes with every input, kept from input to input: making
// one, sealing it and touching its pages for the first time takes longer than what an input does with it. The linker
// sends what the code asks for through kept_files.cpp (--wrap, see CMakeLists.txt). What is mapped of them is kept as
// well (kept_mappings.h).
//
// One thread. Copies of a descriptor are the kernel's and close as ever.
#pragma once

namespace flashmob::fuzz {

// From here on.
void keep_files();
// Where the descriptor is a kept file's own, it is free for the next one that is made, and this is true.
bool forget_kept_file(int fd);

}  // namespace flashmob::fuzz
