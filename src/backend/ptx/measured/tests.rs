//! Readers of a trace: a synthetic trace with a planted discrepancy, and files of odd names.

use super::{MeasuredEvent, MeasuredTrace};
use crate::backend::ptx::cost::machine;
use crate::backend::ptx::tests::matmul;
use crate::backend::ptx::{CompileOptions, PlanSearch, with_plan};
use crate::dtype::DType;
use crate::target::Target;

/// Returns the trace of a matrix multiplication whose measured steps are those of the cost model.
fn product() -> MeasuredTrace {
    let module = matmul(DType::F16, DType::F32, [128, 256, 64]);
    let options = CompileOptions { plan_search: PlanSearch::Off, ..CompileOptions::default() };
    let target = Target::SM_90A;
    let look = &mut |input: &crate::backend::ptx::CostInput<'_, '_>| super::modelled_events(input, machine(target));
    let modelled = with_plan(&module, target, &options, look).unwrap();
    let events = modelled.clone();
    MeasuredTrace { kernel: "product".to_owned(), target: target.to_string(), events, modelled, dropped: 0 }
}

/// A JSON value.
#[derive(Debug, PartialEq)]
enum Json {
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Parses a text without `true`, `false` and `null`.
    fn parse(text: &str) -> Option<Json> {
        let mut rest = text;
        let value = Json::value(&mut rest)?;
        rest.trim().is_empty().then_some(value)
    }

    fn eat(rest: &mut &str, token: char) -> Option<()> {
        *rest = rest.trim_start().strip_prefix(token)?;
        Some(())
    }

    fn list<T>(rest: &mut &str, close: char, item: fn(&mut &str) -> Option<T>) -> Option<Vec<T>> {
        let mut all = Vec::new();
        if Json::eat(rest, close).is_some() {
            return Some(all);
        }
        loop {
            all.push(item(rest)?);
            if Json::eat(rest, ',').is_none() {
                Json::eat(rest, close)?;
                return Some(all);
            }
        }
    }

    fn text(rest: &mut &str) -> Option<String> {
        Json::eat(rest, '"')?;
        let (mut out, mut chars) = (String::new(), rest.char_indices());
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    *rest = &rest[at + 1..];
                    return Some(out);
                }
                '\\' => match chars.next()?.1 {
                    'u' => {
                        let code: String = (0..4).filter_map(|_| chars.next()).map(|(_, digit)| digit).collect();
                        out.push(char::from_u32(u32::from_str_radix(&code, 16).ok()?)?);
                    }
                    c @ ('"' | '\\') => out.push(c),
                    _ => return None,
                },
                c if c < ' ' => return None,
                c => out.push(c),
            }
        }
        None
    }

    fn pair(rest: &mut &str) -> Option<(String, Json)> {
        let name = Json::text(rest)?;
        Json::eat(rest, ':')?;
        Some((name, Json::value(rest)?))
    }

    fn value(rest: &mut &str) -> Option<Json> {
        *rest = rest.trim_start();
        match rest.chars().next()? {
            '{' => {
                Json::eat(rest, '{')?;
                Json::list(rest, '}', Json::pair).map(Json::Object)
            }
            '[' => {
                Json::eat(rest, '[')?;
                Json::list(rest, ']', Json::value).map(Json::List)
            }
            '"' => Json::text(rest).map(Json::Text),
            _ => {
                let end = rest.find([',', '}', ']']).unwrap_or(rest.len());
                let number = rest[..end].trim().parse().ok()?;
                *rest = &rest[end..];
                Some(Json::Number(number))
            }
        }
    }

    fn get(&self, name: &str) -> Option<&Json> {
        let Json::Object(fields) = self else { return None };
        fields.iter().find(|(field, _)| field == name).map(|(_, value)| value)
    }

    fn number(&self, name: &str) -> f64 {
        let Some(Json::Number(number)) = self.get(name) else { panic!("no number {name} in {self:?}") };
        *number
    }
}

/// Returns the complete events of a trace-viewer file.
fn viewed(trace: &MeasuredTrace) -> Vec<Json> {
    let text = trace.trace_events_json();
    let Some(Json::Object(mut fields)) = Json::parse(&text) else { panic!("{text}") };
    let position = fields.iter().position(|(name, _)| name == "traceEvents").unwrap();
    let Json::List(events) = fields.swap_remove(position).1 else { panic!("{text}") };
    events.into_iter().filter(|event| event.get("ph") == Some(&Json::Text("X".to_owned()))).collect()
}

#[test]
fn json_faults_are_found() {
    assert!(Json::parse(r#"{"a": [1.5, "x\\\u0007"], "b": {}}"#).is_some());
    for broken in ["{", r#"{"a": }"#, r#"{"a": 1,}"#, "[\"a\nb\"]", r#"["a"b"]"#, "[1 2]", r#"["\x"]"#] {
        assert!(Json::parse(broken).is_none(), "{broken}");
    }
}

#[test]
fn viewer_files_have_nested_events_and_escaped_names() {
    let odd = "a \"b\" \\ c\n\u{1}é.rs:1:2";
    let event = |warp, start, end| MeasuredEvent {
        role: "con\"sumer".to_owned(),
        kind: "mma".to_owned(),
        line: Some(odd.to_owned()),
        warp,
        start,
        end,
        ..MeasuredEvent::default()
    };
    // Nested, of equal start, adjacent, and overlapping in part.
    let events = vec![event(0, 0, 100), event(0, 0, 40), event(0, 40, 60), event(0, 90, 130), event(4, 7, 8)];
    let trace = MeasuredTrace { kernel: odd.to_owned(), events, ..MeasuredTrace::default() };
    let viewed = viewed(&trace);
    assert_eq!(viewed.len(), trace.events.len());
    let named = Json::Text(format!("mma, step 0, {odd}"));
    assert!(viewed.iter().all(|event| event.get("name") == Some(&named)));
    for (index, event) in viewed.iter().enumerate() {
        let span = |event: &Json| (event.number("ts"), event.number("ts") + event.number("dur"));
        let thread = |event: &Json| (event.number("pid") as u32, event.number("tid") as u32);
        for later in viewed[index + 1..].iter().filter(|later| thread(later) == thread(event)) {
            let ((start, end), (from, to)) = (span(event), span(later));
            assert!(start <= from, "order");
            assert!(from >= end - 1e-9 || to <= end + 1e-9, "{event:?} and {later:?} overlap");
        }
    }
    assert!((viewed[0].number("dur") - 0.1).abs() < 1e-9, "microseconds");
}

#[test]
fn a_planted_discrepancy_is_the_first_step() {
    let trace = product();
    let equal = trace.compare();
    assert!(equal.steps.len() > 5, "{equal}");
    assert!(equal.steps.iter().all(|step| step.contribution() == 0.0), "{equal}");
    // One step after another takes longer.
    for planted in &equal.steps {
        let mut events = trace.events.clone();
        let is_planted = |event: &MeasuredEvent| {
            (&*event.role, event.step, &*event.kind) == (&*planted.role, planted.step, &*planted.kind)
        };
        events.iter_mut().filter(|event| is_planted(event)).for_each(|event| event.end += 1000);
        // Later events of the warp move, as they would.
        for index in 0..events.len() {
            if is_planted(&events[index]) {
                let (warp, end) = (events[index].warp, trace.events[index].end);
                let later = events.iter_mut().enumerate().filter(|(other, event)| {
                    *other != index && event.warp == warp && trace.events[*other].start >= end
                });
                later.for_each(|(_, event)| {
                    event.start += 1000;
                    event.end += 1000;
                });
            }
        }
        let found = MeasuredTrace { events, ..trace.clone() }.compare();
        let first = &found.steps[0];
        assert_eq!((&first.role, first.step, &first.kind), (&planted.role, planted.step, &planted.kind), "{found}");
        assert!((first.contribution() - 1000.0 * first.executions).abs() < 1.0, "{found}");
        assert!(found.measured > found.modelled);
    }
}

#[test]
fn a_run_is_compared_with_the_sum_of_its_modelled_steps() {
    let event = |step, kind: &str, start, end| MeasuredEvent {
        step,
        kind: kind.to_owned(),
        start,
        end,
        ..MeasuredEvent::default()
    };
    let run = MeasuredEvent { run: Some([10, 14]), ..event(12, "compute", 0, 100) };
    // A wait inside of the run with an event of its own, and the run of the next iteration.
    let events = vec![
        run.clone(),
        event(13, "wait", 50, 60),
        event(15, "mma", 100, 110),
        MeasuredEvent { start: 200, end: 320, ..run },
    ];
    let modelled = vec![
        event(9, "compute", 0, 5),
        event(10, "compute", 5, 25),
        event(11, "wait", 25, 32),
        event(12, "compute", 32, 62),
        event(13, "wait", 62, 70),
        event(14, "compute", 70, 71),
        event(15, "mma", 71, 75),
    ];
    let comparison = MeasuredTrace { events, modelled, ..MeasuredTrace::default() }.compare();
    let seen: Vec<_> = comparison.steps.iter().map(|row| (row.step, &*row.kind, row.measured, row.modelled)).collect();
    let want = [
        (12, "compute", Some(105.0), Some(20.0 + 7.0 + 30.0 + 1.0)),
        (15, "mma", Some(10.0), Some(4.0)),
        (13, "wait", Some(10.0), Some(8.0)),
        (9, "compute", None, Some(5.0)),
    ];
    assert_eq!(seen, want);
}

#[test]
fn steps_have_the_time_without_the_steps_inside() {
    let event = |step, start, end| MeasuredEvent { step, start, end, ..MeasuredEvent::default() };
    let events = vec![event(1, 0, 100), event(2, 10, 30), event(2, 40, 50), event(3, 42, 45)];
    let comparison = MeasuredTrace { events, ..MeasuredTrace::default() }.compare();
    let of = |step| comparison.steps.iter().find(|row| row.step == step).unwrap();
    assert_eq!(of(1).measured, Some(70.0));
    assert_eq!((of(2).executions, of(2).measured), (2.0, Some(13.5)));
    assert_eq!((of(3).measured, of(3).modelled, of(3).ratio()), (Some(3.0), None, None));
}

#[test]
fn pictures_show_both_sources_all_roles_and_lines() {
    let trace = product();
    let picture = trace.timeline_svg();
    for part in ["measured: one iteration", "cost model: one iteration", "measured: a tile block", "consumer, warp 4"] {
        assert!(picture.contains(part), "{part} in {picture}");
    }
    assert_eq!(picture.matches(">producer, warp").count(), 4, "one lane of each panel");
    // 128 x 256 x 64 multiply-adds, of 2048 in a cycle, which is 2/3 ns.
    let iteration = picture.split("cost model: one iteration, ").nth(1).and_then(|rest| rest.split(' ').next());
    let nanos: f64 = iteration.and_then(|nanos| nanos.parse().ok()).unwrap_or_else(|| panic!("{picture}"));
    assert!((650.0..900.0).contains(&nanos), "{nanos} ns");
    let none = MeasuredTrace::default().timeline_svg();
    assert!(none.starts_with("<svg") && none.ends_with("</svg>\n"));
}
