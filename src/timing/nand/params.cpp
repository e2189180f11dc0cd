#include "timing/nand/params.h"

#include <limits>

namespace flashmob::timing::nand {

std::string what_is_wrong(const Params& params) {
  const Geometry& g = params.geometry;
  if (g.channels == 0 || g.dies_per_channel == 0 || g.planes == 0 || g.word_lines == 0)
    return "channels, dies_per_channel, planes and word_lines must be at least 1";
  if (g.bits_per_cell == 0 || g.bits_per_cell > kMaxBitsPerCell) return "bits_per_cell must be 1 to 4";
  if (g.unit_bytes < 512 || g.page_bytes % g.unit_bytes != 0)
    return "page_bytes must be a multiple of unit_bytes, which is at least 512";
  if (g.physical_units() >= std::numeric_limits<std::uint32_t>::max())
    return "the drive has more mapping units than a map of 32-bit entries holds; choose a larger unit_bytes";
  for (std::uint32_t page = 0; page < g.bits_per_cell; ++page)
    if (params.cells.read_ns[page] == 0) return "read_ns needs a time for each page of a cell";
  if (params.cells.program_ns == 0 || params.cells.erase_ns == 0) return "program_ns and erase_ns must be at least 1";
  const Ways& ways = params.ways;
  if (ways.channel_bytes_per_s == 0 || ways.link_bytes_per_s == 0)
    return "channel_bytes_per_s and link_bytes_per_s must be at least 1";
  if (!(ways.program_share > 0 && ways.program_share <= 1)) return "program_share must be above 0 and at most 1";
  if (ways.cores == 0) return "cores must be at least 1";
  if (params.streams.count == 0 || params.streams.count > kMaxStreams) return "streams must be 1 to 255";
  if (params.streams.count > 1 && params.slc.most() != 0) return "streams and an SLC cache do not go together";
  if (params.buffer_rows < params.streams.count + 3)
    return "buffer_rows must be at least 4, and one more for each further stream: open rows and two on their way to "
           "the "
           "dies";
  if (params.choices == 0) return "choices must be at least 1";
  if (params.free_superblocks < params.streams.open_superblocks())
    return "free_superblocks must be at least 2, and one for each superblock that is being written";
  if (params.slc.most() != 0 &&
      (g.bits_per_cell < 2 || params.cells.slc_read_ns == 0 || params.cells.slc_program_ns == 0))
    return "an SLC cache needs more than one bit a cell, slc_read_ns and slc_program_ns";
  // Open superblocks (hosts' and moved units), the free ones, and one to collect whose units are not all valid.
  const std::uint32_t kept =
      params.free_superblocks + params.slc.fixed_superblocks + params.streams.open_superblocks() + 1;
  const std::uint64_t usable = g.superblocks > kept ? (g.superblocks - kept) * g.units_per_superblock() : 0;
  if (params.capacity_units == 0 || params.capacity_units > usable)
    return "capacity_units must be at least 1 and leave free_superblocks and three superblocks more (two more for each "
           "further "
           "stream) as spare space";
  return {};
}

}  // namespace flashmob::timing::nand
