//! The cost model of schedules beside measurements: `cargo bench --bench schedules`.

mod compared;
mod rank;

use anyhow::Result;
use compared::configuration::{Place, Step};
use compared::{RECORDS, rows};
use cutlet as ct;
use cutlet::tune::{Records, Trial};
use cutlet::{Backend, Device, Target};

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let records = Records::parse("h200.tune", RECORDS)?;
    let place = Place { device: Device::cpu(), sets: 1 };
    let verbose = words.iter().any(|w| w == "-v");
    for record in records.all() {
        let name = &*record.key.name;
        if !["matmul", "attention"].iter().any(|kernel| name.contains(kernel)) || name.contains("1024 64") && false {
            continue;
        }
        if words.iter().any(|w| !w.starts_with('-')) && !words.iter().any(|w| name.contains(&**w)) {
            continue;
        }
        let row = rows::open(name, place)?;
        let (mut model, mut measured, mut labels) = (Vec::new(), Vec::new(), Vec::new());
        let start = std::time::Instant::now();
        for (index, label) in row.labels().iter().enumerate() {
            let Some(Trial::Times(times)) = record.trial(label) else { continue };
            let mut out = Vec::new();
            let priced = row.call(index, 0, Backend::Ptx, Step::Price { target: Target::SM_90A, out: &mut out });
            if let Err(error) = priced {
                println!("{name}: {label}: {error}");
                continue;
            }
            if words.iter().any(|w| w == "-t") {
                let mut text = Vec::new();
                let _ = row.call(index, 0, Backend::Ptx, Step::Explain { target: Target::SM_90A, out: &mut text });
                println!("{label}: {}", text.join("\n"));
            }
            model.push(out.iter().sum::<f64>());
            measured.push(times[times.len() / 2].as_secs_f64() * 1e6);
            labels.push(label.clone());
        }
        let least = |list: &[f64]| list.iter().copied().fold(f64::INFINITY, f64::min);
        let mut order: Vec<usize> = (0..model.len()).collect();
        order.sort_by(|&a, &b| measured[a].total_cmp(&measured[b]));
        if verbose {
            for &at in &order {
                println!("   {:9.1} {:9.1} {:5.2}  {}", measured[at], model[at], model[at] / measured[at] * least(&measured) / least(&model), labels[at]);
            }
        }
        let best = (0..model.len()).min_by(|&a, &b| model[a].total_cmp(&model[b])).unwrap_or(0);
        println!(
            "{name}: {} configurations, rho {:.2}, regret {:.1} % ({}), {:.1} s",
            model.len(),
            rank::spearman(&model, &measured).unwrap_or(f64::NAN),
            (measured[best] / least(&measured) - 1.0) * 100.0,
            labels[best],
            start.elapsed().as_secs_f64()
        );
    }
    let _ = ct::Hints::new();
    Ok(())
}
