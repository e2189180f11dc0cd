/* The protocol of one line of the software cache (gpu/include/flashmob/gpu/cache_sets.h) as a model for spin 6.5.
 *
 * THREADS threads read or write one of two blocks each, ROUNDS times, through a cache of a single line; one SSD carries
 * out fetches and write-backs, some of which may fail. The line's word (state, writing, pins, writers) is changed by
 * atomic steps only, as the code does; tag, data and the command's announcement are words of their own. Data are a
 * version number per block. Every wait is a blocked statement, so a lost wake-up is an invalid end state. Checked: who
 * holds a pin sees the block that he asked for in its newest version, for as long as he holds it; data are not changed
 * while they are written; a line is never given away with changes in it; in the end nothing is pinned or in flight, and
 * cache and SSD together hold every change.
 *
 * Faults for the check itself: -DNO_SECOND_LOOK trusts the tag that was read before the pin, -DEARLY_LOOK reads it
 * again, but before the fetch has ended, -DTAKE_PINNED gives a pinned line away, -DLOSE_FAILED takes a line
 * for clean when its write-back has failed, -DWRITE_DURING lets writers in during a write-back.
 *
 * For check.sh, which runs every line:
 * run: -DTHREADS=2 -DROUNDS=2
 * run: -DTHREADS=2 -DROUNDS=2 -DERRORS
 * run: -DTHREADS=3 -DROUNDS=1
 * must fail: -DNO_SECOND_LOOK -DTHREADS=2 -DROUNDS=2
 * must fail: -DEARLY_LOOK -DTHREADS=3 -DROUNDS=1
 * must fail: -DTAKE_PINNED -DTHREADS=2 -DROUNDS=1
 * must fail: -DLOSE_FAILED -DERRORS -DTHREADS=2 -DROUNDS=1
 * must fail: -DWRITE_DURING -DTHREADS=3 -DROUNDS=1
 */
#ifndef THREADS
#define THREADS 2
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#define NOBODY 2   /* no block */
#define BAD 99     /* data of no version */

mtype = { invalid, busy, ready, modified };        /* the line's state */
mtype = { idle, pending, good, bad };              /* the command in flight, and how it ended */

mtype state = invalid;
bool writing;
byte pins, writers;
byte tag = NOBODY;
byte data = BAD;       /* the version in the line */
byte holds = NOBODY;   /* the block whose data the line has, whatever its tag says: for the checks only */
mtype io = idle;
bool is_store;
bool lock;

byte media[2];    /* the version on the SSD, per block */
byte newest[2];   /* the newest version, per block */
byte finished;

proctype ssd() {
  byte sent;
end:
  do
  :: io == pending && !is_store ->
     atomic { data = media[tag]; holds = tag; io = good }
#ifdef ERRORS
  :: io == pending && !is_store -> io = bad
#endif
  :: io == pending && is_store ->
     sent = data;
     atomic { assert(sent == data); media[tag] = sent; io = good }
#ifdef ERRORS
  :: io == pending && is_store -> io = bad
#endif
  od
}

/* Whoever sees that the command has ended, and is the first, draws the consequences: two steps, as in the code. */
inline settle() {
  atomic {
    if
    :: io == good -> io = idle; won = good
    :: io == bad -> io = idle; won = bad
    :: else -> won = idle
    fi
  }
  if
  :: won == idle
  :: won != idle && writing ->
     atomic {
       writing = false;
       if
#ifdef LOSE_FAILED
       :: won == bad
#else
       :: won == bad -> state = modified
#endif
       :: won == good
       fi
     }
  :: won != idle && !writing ->
     atomic {
       if
       :: won == good -> state = ready
       :: won == bad -> state = invalid
       fi
     }
  fi
}

/* Under the set's lock: takes the line for `block`, or begins to write it back, or does nothing. */
inline claim() {
  atomic { !lock -> lock = true }
  mine = false;
  if
  :: tag == block && state != invalid   /* somebody has brought it */
  :: else ->
     atomic {
       if
#ifdef TAKE_PINNED
       :: (state == invalid || state == ready) && !writing ->
#else
       :: (state == invalid || state == ready) && !writing && pins == 0 ->
#endif
          assert(holds == NOBODY || state == invalid || data == newest[holds]);
          state = busy; pins++; mine = true;
          if
          :: writes -> writers++
          :: else
          fi
       :: state == modified && !writing && writers == 0 ->
          state = ready; writing = true; store = true
       :: else
       fi
     }
     if
     :: mine -> tag = block
     :: else
     fi
  fi
  lock = false;
  if
  :: store -> atomic { is_store = true; io = pending; store = false }
  :: else
  fi
}

inline unpin() {
  atomic {
    pins--;
    if
    :: writes -> writers--
    :: else
    fi
  }
}

proctype thread() {
  byte block, round, seen;
  bool writes, mine, store, told;
  mtype won;
  do
  :: round == ROUNDS -> break
  :: round < ROUNDS ->
     round++;
     if
     :: block = 0
     :: block = 1
     fi
     if
     :: writes = false
     :: writes = true
     fi
again:
     told = false;
     mine = false;
     if
     :: tag == block ->
        /* Found. Pinned, whatever has become of it since. */
        atomic {
          pins++;
          if
          :: writes -> writers++
          :: else
          fi
          mine = (state != invalid)
        }
        if
        :: !mine -> unpin()
        :: else
        fi
     :: tag != block
     fi
#ifdef EARLY_LOOK
     if
     :: mine && tag != block -> unpin(); goto again
     :: else
     fi
#endif
     if
     :: !mine ->
        claim();
        if
        :: mine -> atomic { is_store = false; io = pending }
        :: else ->
           /* Something must end, or somebody leave, before it is worth looking again. */
           (io == good || io == bad || tag == block || (state != busy && !writing && (pins == 0 || state == modified)));
           settle();
           goto again
        fi
     :: else
     fi
     /* Pinned: until it is neither being filled nor, for a writer, being written. */
     do
#ifdef WRITE_DURING
     :: state != busy -> break
#else
     :: state != busy && !(writes && writing) -> break
#endif
     :: (state == busy || writing) && (io == good || io == bad) -> settle()
     od
#if !defined(NO_SECOND_LOOK) && !defined(EARLY_LOOK)
     if
     :: tag != block -> unpin(); goto again
     :: else
     fi
#endif
     if
     :: state == invalid -> told = true   /* the fetch has failed, and this thread knows */
     :: else ->
        assert(holds == block && data == newest[block]);
        if
        :: writes ->
           state = modified;
           atomic { newest[block]++; data = newest[block] }
        :: else
        fi
        assert(holds == block && data == newest[block])
     fi
     unpin()
  od
  finished++
}

init {
  byte i;
  atomic {
    run ssd();
    for (i : 1 .. THREADS) { run thread() }
  }
  finished == THREADS;
  /* What may still be in flight is a write-back that nobody waited for. */
  io != pending;
  assert(pins == 0 && writers == 0 && !lock && state != busy);
  assert(holds == NOBODY || state == invalid || state == modified || writing || data == newest[holds]);
  for (i : 0 .. 1) {
    assert(media[i] == newest[i] || (holds == i && data == newest[i] && (state == modified || writing)))
  }
}
