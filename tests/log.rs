//! Warnings in the logger of the program, and spans of compilations and launches.

use std::sync::Mutex;

use cutlet as ct;
use cutlet::prelude::*;

static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn note(what: String) {
    SEEN.lock().unwrap().push(what);
}

struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        note(format!("{} {}: {}", record.level(), record.target(), record.args()));
    }

    fn flush(&self) {}
}

struct Spans;

impl tracing::Subscriber for Spans {
    fn enabled(&self, data: &tracing::Metadata<'_>) -> bool {
        data.target() == "cutlet"
    }

    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        let mut fields = Vec::new();
        span.record(&mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
            fields.push(format!("{field}={value:?}"));
        });
        note(format!("{} {}", span.metadata().name(), fields.join(" ")));
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {}

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {
        note("end".to_owned());
    }
}

fn fill(x: ArrayMut<f32, 1>) {
    x.store(ct::bid(0), ct::ones([4]));
}

#[test]
fn a_program_sees_warnings_and_spans() -> ct::Result<()> {
    // SAFETY: this process has one test, and no other thread yet.
    unsafe {
        std::env::remove_var("CUTLET_BACKEND");
        std::env::set_var("CUDA_VISIBLE_DEVICES", "");
    }
    log::set_logger(&Logger).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    tracing::subscriber::set_global_default(Spans).unwrap();
    let device = ct::Device::first()?;
    let mut x = device.zeros([8])?;
    ct::launch(fill, 2, (&mut x,))?;
    ct::launch(fill, 2, (&mut x,))?;
    let seen = SEEN.lock().unwrap();
    let (first, rest) = seen.split_first().expect("a warning");
    assert!(
        first.starts_with("WARN cutlet: no GPU (") && first.ends_with("kernels run on the cpu back end"),
        "{first}"
    );
    let launch = "launch kernel=\"fill\" grid=[2, 1, 1]";
    assert_eq!(rest, ["compile kernel=\"fill\" backend=cpu", "end", launch, "end", launch, "end"]);
    Ok(())
}
