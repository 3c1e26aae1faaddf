//! `mind-ctl top`: how the system does, live, in a terminal.
//!
//! * [`sample`] is what the controller says at one moment,
//! * [`rates`] is what happened between two, pure,
//! * [`view`] draws it.

mod rates;
mod sample;
mod view;

use std::{io::IsTerminal as _, time::Duration};

use anyhow::{Context as _, Result, ensure};
use futures_util::StreamExt as _;
use ratatui::{
    DefaultTerminal, Terminal,
    backend::TestBackend,
    crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{Interval, MissedTickBehavior, interval},
};

use self::{
    rates::{Order, Rates},
    sample::Sample,
    view::View,
};
use super::{Common, Controller, Format, INTERVALS, seconds};

/// What `mind-ctl top` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Seconds from one look to the next.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    interval: f64,
    /// Print one screen, after one interval, and end; no terminal is needed.
    #[arg(long)]
    once: bool,
    /// Columns of that screen.
    #[arg(long, value_name = "COLUMNS", default_value_t = 100, requires = "once", value_parser = clap::value_parser!(u16).range(40..=1000))]
    width: u16,
    /// Its lines.
    #[arg(long, value_name = "LINES", default_value_t = 30, requires = "once", value_parser = clap::value_parser!(u16).range(10..=1000))]
    height: u16,
}

pub(crate) async fn run(args: &Args) -> Result<()> {
    let controller = args.common.connect().await?;
    if args.once || args.common.output == Format::Json {
        return once(&controller, args).await;
    }
    ensure!(
        std::io::stdout().is_terminal(),
        "`mind-ctl top` needs a terminal; with --once it prints one screen, with -o json its figures"
    );
    let mut terminal = ratatui::try_init().context("cannot draw on this terminal")?;
    let result = live(&controller, args, &mut terminal).await;
    ratatui::restore();
    result
}

/// Takes two samples and prints what happened between them.
async fn once(controller: &Controller, args: &Args) -> Result<()> {
    let before = Sample::take(controller).await?;
    tokio::time::sleep(Duration::from_secs_f64(args.interval)).await;
    let after = Sample::take(controller).await?;
    let rates = Rates::between(&before, &after, Order::default());
    let text = match args.common.output {
        Format::Json => serde_json::to_string_pretty(&rates)?,
        Format::Text => screen(&rates, args.width, args.height)?,
    };
    mind_cli::print(&text).context("cannot print")
}

/// A screen as text.
fn screen(rates: &Rates, width: u16, height: u16) -> Result<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height))?;
    terminal.draw(|frame| View::of(rates).draw(frame))?;
    let buffer = terminal.backend().buffer();
    let lines = buffer.content().chunks(width.into()).map(|cells| {
        let line: String = cells.iter().map(|cell| cell.symbol()).collect();
        line.trim_end().to_owned()
    });
    Ok(lines.collect::<Vec<_>>().join("\n").trim_end().to_owned())
}

/// What a key says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    End,
    Pause,
    Order,
    Faster,
    Slower,
    Draw,
}

impl Wish {
    fn of(event: &Event) -> Option<Self> {
        match event {
            Event::Resize(..) => Some(Self::Draw),
            Event::Key(KeyEvent {
                code,
                modifiers,
                kind: KeyEventKind::Press,
                ..
            }) => match code {
                KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => Some(Self::End),
                KeyCode::Char('q') | KeyCode::Esc => Some(Self::End),
                KeyCode::Char('p' | ' ') => Some(Self::Pause),
                KeyCode::Char('s') => Some(Self::Order),
                KeyCode::Char('+') => Some(Self::Faster),
                KeyCode::Char('-') => Some(Self::Slower),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Ticks each so many seconds, from now on; late ones are left out.
fn ticks(seconds: f64) -> Interval {
    let mut ticks = interval(Duration::from_secs_f64(seconds));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Draws until the user ends it by a key, or a signal asks the process to end.
async fn live(controller: &Controller, args: &Args, terminal: &mut DefaultTerminal) -> Result<()> {
    let signal = |kind| signal(kind).context("cannot wait for signals");
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut events = EventStream::new();
    let mut seconds = args.interval;
    let mut ticks = ticks(seconds);
    let mut order = Order::default();
    let mut is_paused = false;
    let mut before: Option<Sample> = None;
    let mut rates = Rates::default();
    loop {
        tokio::select! {
            _ = term.recv() => return Ok(()),
            _ = int.recv() => return Ok(()),
            _ = hangup.recv() => return Ok(()),
            _ = ticks.tick(), if !is_paused => {
                let after = Sample::take(controller).await?;
                rates = Rates::between(before.as_ref().unwrap_or(&after), &after, order);
                before = Some(after);
            }
            event = events.next() => {
                let event = event.context("the terminal is gone")?.context("cannot read keys")?;
                match Wish::of(&event) {
                    Some(Wish::End) => return Ok(()),
                    Some(Wish::Pause) => is_paused = !is_paused,
                    Some(Wish::Order) => {
                        order = order.next();
                        rates.sort(order);
                    }
                    Some(wish @ (Wish::Faster | Wish::Slower)) => {
                        let (least, most) = INTERVALS;
                        let factor = if wish == Wish::Faster { 0.5 } else { 2.0 };
                        seconds = (seconds * factor).clamp(least, most);
                        ticks = self::ticks(seconds);
                    }
                    Some(Wish::Draw) => {}
                    None => continue,
                }
            }
        }
        let view = View {
            rates: &rates,
            keys: Some((seconds, is_paused)),
        };
        terminal
            .draw(|frame| view.draw(frame))
            .context("cannot draw on this terminal")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_bounded() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        for wrong in ["0", "-1", "61", "NaN", "inf", "fast"] {
            let error = seconds(wrong).unwrap_err();
            assert!(error.contains("from 0.1 to 60"), "{wrong}: {error}");
        }
    }

    #[test]
    fn keys_are_wishes() {
        let press = |code, modifiers| Event::Key(KeyEvent::new(code, modifiers));
        for (code, modifiers, wish) in [
            (KeyCode::Char('q'), KeyModifiers::NONE, Some(Wish::End)),
            (KeyCode::Char('c'), KeyModifiers::CONTROL, Some(Wish::End)),
            (KeyCode::Char('c'), KeyModifiers::NONE, None),
            (KeyCode::Char(' '), KeyModifiers::NONE, Some(Wish::Pause)),
            (KeyCode::Char('s'), KeyModifiers::NONE, Some(Wish::Order)),
        ] {
            assert_eq!(Wish::of(&press(code, modifiers)), wish, "{code:?}");
        }
        assert_eq!(Wish::of(&Event::Resize(80, 24)), Some(Wish::Draw));
    }
}
