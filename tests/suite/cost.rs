//! What a piece of work costs its thread: processor time and the most memory that it held at once.
//!
//! Limits of rows are stated for a release build on an idle machine. Time is the thread's own, so that a busy machine
//! changes nothing, and an unoptimised build is granted ten times as much; bytes are the same in every build.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How much longer an unoptimised build may take.
pub const SLOWNESS: u32 = if cfg!(debug_assertions) { 10 } else { 1 };

pub const MIB: usize = 1 << 20;

/// What one piece of work cost.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    pub time: Duration,
    /// Bytes, beyond what was held before.
    pub peak: usize,
    /// Bytes of the largest single allocation.
    pub largest: usize,
}

impl Cost {
    /// Fails when the work took longer, or held more, than a row allows.
    pub fn must_be_within(self, time: Duration, bytes: usize, what: &str) {
        assert!(self.time <= time * SLOWNESS, "{what}: {self:?}");
        assert!(self.peak <= bytes, "{what}: {self:?}");
    }
}

/// Runs `work` in this thread and measures it.
pub fn of<T>(work: impl FnOnce() -> T) -> (T, Cost) {
    let before = processor_time();
    HELD.set(0);
    PEAK.set(0);
    LARGEST.set(0);
    let measuring = Measuring::begin();
    let result = work();
    drop(measuring);
    let (peak, largest) = (PEAK.get(), LARGEST.get());
    let time = processor_time().saturating_sub(before);
    (result, Cost { time, peak: usize::try_from(peak).unwrap_or(0), largest })
}

/// The first number is nanoseconds on a processor (proc_pid_schedstat(5)).
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux says what a thread used");
    let nanoseconds = text.split(' ').next().and_then(|text| text.parse().ok());
    Duration::from_nanos(nanoseconds.expect("the first number of schedstat"))
}

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

/// How many threads measure. Nothing is counted while none does: most tests never ask.
static MEASURING: AtomicUsize = AtomicUsize::new(0);

/// Lasts as long as something is measured, whether it ends well or not.
struct Measuring;

impl Measuring {
    fn begin() -> Self {
        MEASURING.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for Measuring {
    fn drop(&mut self) {
        MEASURING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The system's allocator, which also counts for each thread.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn grown(bytes: isize, largest: usize) {
    if MEASURING.load(Ordering::Relaxed) == 0 {
        return;
    }
    // A thread that ends may free after its counters are gone.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        PEAK.with(|peak| peak.set(peak.get().max(held.get())));
        LARGEST.with(|known| known.set(known.get().max(largest)));
    });
}

// SAFETY: every call is handed on to the system's allocator as it is; counting neither allocates nor panics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size() as isize, layout.size());
        // SAFETY: the caller's promise, handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        grown(-(layout.size() as isize), 0);
        // SAFETY: the caller's promise, handed on.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        grown(size as isize - layout.size() as isize, size);
        // SAFETY: the caller's promise, handed on.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[test]
fn work_is_measured_in_the_thread_that_does_it() {
    let (sum, cost) = of(|| {
        let many = vec![1_u8; 5 * MIB];
        std::thread::spawn(|| drop(vec![0_u8; 50 * MIB])).join().expect("it ends");
        let before = processor_time();
        let mut rounds = 0_u64;
        while processor_time() - before < Duration::from_millis(30) {
            rounds += many.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        }
        rounds
    });
    assert!(sum > 0);
    assert!(cost.peak >= 5 * MIB && cost.peak < 6 * MIB && cost.largest == 5 * MIB, "{cost:?}");
    assert!(cost.time >= Duration::from_millis(30), "{cost:?}");
}
