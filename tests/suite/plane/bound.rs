//! Processes that end with the test that started them, however it ends.
//!
//! The kernel is asked to kill a child when its parent is gone. It means the parent's *thread*, and a test is a thread: so one
//! thread that never ends starts everybody's children.

use std::io;
use std::process::{Child, Command};
use std::sync::{Mutex, OnceLock, mpsc};

struct Order {
    command: Command,
    answer: mpsc::Sender<io::Result<Child>>,
}

/// A command that dies with this process; start it with [`spawn`]. Arguments, environment and streams are the caller's.
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]);
    // A parent that ended before the kernel was asked is not noticed any more: then nothing may start.
    command.args(["sh", "-c", r#"[ "$PPID" = "$0" ] && exec "$@""#]).arg(std::process::id().to_string());
    command.arg(program);
    command
}

/// Starts what [`command`] made. The process id is the program's own.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    static NURSERY: OnceLock<Mutex<mpsc::Sender<Order>>> = OnceLock::new();
    let nursery = NURSERY.get_or_init(|| {
        let (orders, incoming) = mpsc::channel::<Order>();
        std::thread::spawn(move || {
            for Order { mut command, answer } in incoming {
                // Whoever asked may have given up; then its child goes too.
                if let Err(mpsc::SendError(Ok(mut child))) = answer.send(command.spawn()) {
                    child.kill().and_then(|()| child.wait()).ok();
                }
            }
        });
        Mutex::new(orders)
    });
    let (answer, answered) = mpsc::channel();
    let order = Order { command, answer };
    nursery.lock().expect("nobody panics here").send(order).expect("the nursery never ends");
    answered.recv().expect("the nursery always answers")
}
