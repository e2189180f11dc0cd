/* The submission and service protocol of one queue (gpu/include/flashmob/gpu/queue.h) as a model for spin 6.5.
 *
 * SUBMITTERS threads send COMMANDS commands each through a ring of ENTRIES entries, with a slot fewer; one SSD fetches in
 * order and answers in any order; one service takes completions, and whoever finds the stack of ready slots not empty
 * and the combiner's word free brings commands to the ring. Every wait is a blocked statement, so a lost wake-up is an
 * invalid end state. One submitter may stop for ever between taking a slot and publishing it: all others must still
 * come to their end. Checked: every command reaches the SSD once and whole, identifiers in flight are unique, the ring
 * never holds more than it can, every thread is told of its own command, and nothing is left behind.
 *
 * A queue with a single slot is checked without the stalling submitter, which would keep the slot.
 *
 * Faults for the check itself: -DEARLY_PUBLISH publishes a slot before it is filled, -DNO_LOOK_AGAIN leaves out the
 * combiner's look after it has given its word back, -DLOCK_HELD waits for a free slot with the combiner's word held,
 * -DLATE_ISSUE marks slots as issued after the doorbell. Each must be found.
 *
 * For check.sh, which runs every line:
 * run: -DSUBMITTERS=2 -DCOMMANDS=2
 * run: -DSUBMITTERS=3 -DCOMMANDS=1
 * run: -DSUBMITTERS=3 -DCOMMANDS=2 -DENTRIES=2
 * must fail: -DEARLY_PUBLISH
 * must fail: -DNO_LOOK_AGAIN
 * must fail: -DLOCK_HELD -DSUBMITTERS=3
 * must fail: -DLATE_ISSUE
 */
#ifndef SUBMITTERS
#define SUBMITTERS 2
#endif
#ifndef COMMANDS
#define COMMANDS 2
#endif
#ifndef ENTRIES
#define ENTRIES 3
#endif
#define SLOTS (ENTRIES - 1)
#define NONE 255

/* The first submitter's process number: the SSD, the service and init come before. */
#define FIRST 3

mtype = { free, taken, ready, issued, done };

/* Slots. `payload` stands for the whole command: who sent it. */
mtype state[SLOTS];
byte payload[SLOTS] = NONE;
byte ticket[SLOTS];
byte next[SLOTS];
bool is_free[SLOTS] = true;

byte top;       /* of the stack of ready slots: slot + 1, 0 is empty */
bool combiner;  /* the combiner's word */

/* Rings: what the SSD sees. */
byte ring_slot[ENTRIES];
byte ring_payload[ENTRIES];
byte tail, doorbell, head;

byte in_flight;
bool with_ssd[SLOTS];
byte answered[SUBMITTERS];  /* commands of each that the SSD has carried out */
chan completions = [SLOTS] of { byte };
byte finished;  /* submitters that have ended */

/* Moves the stack to the ring and rings once. */
inline issue() {
  d_step {
    batch = top;
    top = 0;
  }
  do
  :: batch != 0 ->
     d_step {
       ring_slot[tail] = batch - 1;
       ring_payload[tail] = payload[batch - 1];
       here = batch - 1;
       batch = next[here];
       tail = (tail + 1) % ENTRIES;
     }
#ifdef LATE_ISSUE
     doorbell = tail;
#endif
     state[here] = issued
  :: else -> break
  od;
  doorbell = tail
}

inline combine() {
  do
  :: d_step { got = !combiner; combiner = true };
     if
     :: !got -> break
     :: else
     fi;
     issue();
     combiner = false;
#ifdef NO_LOOK_AGAIN
     break
#else
     if
     :: top == 0 -> break
     :: else
     fi
#endif
  od
}

inline claim() {
  atomic {
    if
    :: is_free[0] -> slot = 0
#if SLOTS > 1
    :: is_free[1] -> slot = 1
#endif
#if SLOTS > 2
    :: is_free[2] -> slot = 2
#endif
    fi;
    is_free[slot] = false;
    state[slot] = taken
  }
}

inline fill() { payload[slot] = _pid - FIRST }

inline publish() {
  state[slot] = ready;
  do
  :: seen = top;
     next[slot] = seen;
     d_step {
       won = (top == seen);
       if
       :: won -> top = slot + 1
       :: else
       fi
     };
     if
     :: won -> break
     :: else
     fi
  od
}


proctype submitter(bool may_stall) {
  byte slot, seen, batch, here, mine, sent;
  bool got, won;
  do
  :: sent < COMMANDS ->
#ifdef LOCK_HELD
     atomic { !combiner -> combiner = true };
     claim();
     fill();
     publish();
     combiner = false;
     combine();
#else
     claim();
     mine = ticket[slot];
     if
     :: may_stall -> goto stalled
     :: true
     fi;
#ifdef EARLY_PUBLISH
     publish();
     fill();
#else
     fill();
     publish();
#endif
     combine();
#endif
     /* wait(), with a service: looks at its slot only. */
     state[slot] == done;
#ifndef LOCK_HELD
     assert(ticket[slot] == mine);
#endif
     sent++;
     assert(answered[_pid - FIRST] == sent);
     /* release() */
     d_step {
       ticket[slot] = ticket[slot] + 1;
       payload[slot] = NONE;
       state[slot] = free
     };
     is_free[slot] = true
  :: else -> break
  od;
stalled:
  finished++
}

active proctype ssd() {
  byte who, i;
end:
  do
  :: atomic {
       head != doorbell ->
       i = ring_slot[head];
       who = ring_payload[head];
       assert(who != NONE);
       assert(!with_ssd[i]);
       with_ssd[i] = true;
       in_flight++;
       assert(in_flight <= SLOTS);
       head = (head + 1) % ENTRIES;
       answered[who]++
     }
  :: atomic {  /* any of them, in any order */
       if
       :: with_ssd[0] -> i = 0
#if SLOTS > 1
       :: with_ssd[1] -> i = 1
#endif
#if SLOTS > 2
       :: with_ssd[2] -> i = 2
#endif
       fi;
       with_ssd[i] = false;
       in_flight--;
       completions ! i
     }
  od
}

/* Takes completions; helps a submitter that was held up between publishing and ringing. */
active proctype service() {
  byte i, batch, here;
  bool got;
end:
  do
  :: completions ? i ->
     assert(state[i] == issued);
     state[i] = done
#ifdef SERVICE_HELPS
  :: top != 0 && !combiner -> combine()
#endif
  od
}

init {
  atomic {
    byte k;
    for (k : 0 .. SLOTS - 1) { state[k] = free }
    for (k : 0 .. SUBMITTERS - 1) { run submitter(k == 0 && SLOTS > 1) }
  }
  finished == SUBMITTERS;
  assert(top == 0 && !combiner && in_flight == 0);
}
