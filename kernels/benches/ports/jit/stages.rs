//! Choice of the configurations of a sequence of launches, as Triton's autotuner makes it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use cutlet::{Bench, Stream};

use crate::Queue;

/// A configuration of a launch.
pub struct Choice {
    pub label: String,
    /// Lines of kernel code of the original.
    pub lines: usize,
    /// Cubin, grid and arguments.
    pub launch: [String; 3],
}

/// Configurations by the place of the launch in its sequence.
pub type Stages = BTreeMap<usize, Vec<Choice>>;

/// A sequence of launches with its label and its lines of code.
pub type Chosen = (String, usize, Vec<Queue>);

/// Returns the fastest configuration of each launch. Launches run in their order.
pub fn fastest(stages: &Stages, stream: &Stream, open: impl Fn(&[String; 3]) -> Result<Queue>) -> Result<Chosen> {
    let (mut labels, mut lines, mut queues) = (Vec::new(), 0, Vec::new());
    for (stage, choices) in stages {
        let mut best: Option<(Duration, &Choice, Queue)> = None;
        for choice in choices {
            let attempt = open(&choice.launch).and_then(|queue| {
                let time = match choices.len() {
                    1 => {
                        queue(stream)?;
                        Duration::ZERO
                    }
                    _ => Bench::new().runs(3).run(stream, || queue(stream))?.median(),
                };
                Ok((time, queue))
            });
            match attempt {
                Ok((time, queue)) => {
                    if best.as_ref().is_none_or(|(least, ..)| time < *least) {
                        best = Some((time, choice, queue));
                    }
                }
                Err(fault) => println!("{stage}\tREFUSED: {}: {fault:#}", choice.label),
            }
        }
        let (_, choice, queue) = best.with_context(|| format!("no configuration of launch {stage}"))?;
        if choices.len() > 1 {
            labels.push(choice.label.as_str());
        }
        lines = choice.lines;
        queues.push(queue);
    }
    Ok((labels.join("; "), lines, queues))
}
