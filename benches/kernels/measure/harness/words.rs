//! Options of a command line as a table: `--name value`, `--name=value`, or `--name` alone for
//! flags.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use cutlet::backend::tileir::Version;
use cutlet::{Backend, Checks, Target};

/// The words of a command line that are left.
pub struct Words<'a> {
    rest: std::slice::Iter<'a, String>,
    name: String,
    /// Text after `=`.
    value: Option<&'a str>,
}

impl<'a> Words<'a> {
    /// All of them.
    pub fn new(words: &'a [String]) -> Words<'a> {
        Words { rest: words.iter(), name: String::new(), value: None }
    }

    /// The name of the next option; nothing after the last one.
    pub fn option(&mut self) -> Result<Option<String>> {
        let Some(word) = self.rest.next() else { return Ok(None) };
        let option = word.strip_prefix("--").with_context(|| format!("`{word}`: options begin with --"))?;
        let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        (self.name, self.value) = (name.to_string(), value);
        Ok(Some(self.name.clone()))
    }

    /// The next word that belongs to the option.
    pub fn word(&mut self) -> Result<&'a str> {
        let word = self.value.take().or_else(|| self.rest.next().map(String::as_str));
        word.with_context(|| format!("--{}: a value is missing", self.name))
    }

    /// Parses the next word.
    pub fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(&mut self) -> Result<T> {
        let word = self.word()?;
        word.parse().map_err(|error| anyhow!("--{} {word}: {error}", self.name))
    }
}

/// Type of the value of an option.
pub trait Value: Sized {
    /// Parses it from the words after the option's name.
    fn take(words: &mut Words) -> Result<Self>;
}

impl Value for bool {
    fn take(_: &mut Words) -> Result<bool> {
        Ok(true)
    }
}

impl<T: Value> Value for Option<T> {
    fn take(words: &mut Words) -> Result<Option<T>> {
        T::take(words).map(Some)
    }
}

impl<T: Value + Copy + Default, const N: usize> Value for [T; N] {
    fn take(words: &mut Words) -> Result<[T; N]> {
        let mut values = [T::default(); N];
        values.iter_mut().try_for_each(|value| T::take(words).map(|taken| *value = taken))?;
        Ok(values)
    }
}

macro_rules! parsed {
    ($($type:ty)+) => {$(
        impl Value for $type {
            fn take(words: &mut Words) -> Result<$type> {
                words.parse()
            }
        }
    )+};
}

parsed!(usize u32 u64 f32 String PathBuf Backend Checks Target Version);

/// Defines `Cli`, the options of a kernel with their defaults in addition to the common ones, and
/// `start`, which runs the kernel with the options of a command line.
macro_rules! options {
    ($(#[$doc:meta])* {$($(#[doc = $help:literal])+ $name:literal $field:ident: $type:ty = $default:expr,)*}) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct Cli {
            options: Options,
            $($(#[doc = $help])+ $field: $type,)*
        }

        /// Runs the kernel with the options of these words.
        pub fn start(words: &[String]) -> Result<()> {
            let mut cli = Cli { options: Options::default(), $($field: $default,)* };
            let mut words = crate::measure::harness::words::Words::new(words);
            while let Some(name) = words.option()? {
                match name.as_str() {
                    $($name => cli.$field = crate::measure::harness::words::Value::take(&mut words)?,)*
                    name if cli.options.take(name, &mut words)? => {}
                    name => {
                        let own: &[(&str, &str)] = &[$(($name, concat!($($help),+)),)*];
                        let own: String = own.iter().map(|(name, help)| format!("\n  --{name:<17}{help}")).collect();
                        anyhow::ensure!(name == "help", "there is no option --{name}; there are{own}{}", Options::HELP);
                        println!("Options:{own}{}", Options::HELP);
                        return Ok(());
                    }
                }
            }
            run(&cli)
        }
    };
}

/// An enumeration by the names of its values.
macro_rules! choice {
    ($(#[$doc:meta])* $choice:ident {$($(#[$of_value:meta])* $value:ident = $name:literal,)+}) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub enum $choice {
            $($(#[$of_value])* $value,)+
        }

        impl $choice {
            /// Returns its name on the command line.
            #[allow(dead_code, reason = "not every choice is printed")]
            pub const fn name(self) -> &'static str {
                match self {
                    $($choice::$value => $name,)+
                }
            }
        }

        impl crate::measure::harness::words::Value for $choice {
            fn take(words: &mut crate::measure::harness::words::Words) -> Result<$choice> {
                match words.word()? {
                    $($name => Ok($choice::$value),)+
                    other => anyhow::bail!("`{other}` is none of{}", concat!($(" ", $name),+)),
                }
            }
        }
    };
}
