//! Telling the controller what the packet filter counted, from the monitor.
//!
//! The monitor has no capabilities, but its user made N, and the kernel lets that user ask about what N owns.

use super::netlink::ask;
use crate::channel::Events;
use crate::failure::{Context, Failure, Stage};
use landbox_shared::event::Event;
use landbox_shared::network::egress::Egress;
use landbox_shared::network::ruleset::count::{self, Told};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

const STAGE: Stage = Stage::Watch;
/// How often the counters are read: how exact a first and last time can be.
const INTERVAL: Duration = Duration::from_secs(1);
const SEQ: u32 = 1;

/// What was counted and told.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// To the packet filter of N; it keeps that readable after the end of all processes in it.
    socket: OwnedFd,
    told: Told,
    next: Instant,
}

impl Recorder {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket, told: Default::default(), next: Instant::now() + INTERVAL }
    }

    /// The number of its socket, the one that the monitor's filter lets it ask by.
    pub(crate) fn number(&self) -> u32 {
        self.socket.as_raw_fd().cast_unsigned()
    }

    /// Tells what has grown, if it is time to.
    pub(crate) fn tell_in_time(&mut self, events: &Events) -> Result<(), Failure> {
        if Instant::now() < self.next {
            return Ok(());
        }
        self.next = Instant::now() + INTERVAL;
        // What the controller has no room for it is told the next time.
        self.tell(|event| events.offer(STAGE, event))
    }

    /// Tells all there is to tell yet, however long the controller takes to hear it.
    pub(crate) fn tell_last(&mut self, events: &Events) -> Result<(), Failure> {
        self.tell(|event| events.send(STAGE, event, &[]).map(|()| true))
    }

    /// Tells what has grown since the last time, as long as it is heard.
    fn tell(&mut self, hear: impl Fn(&Event) -> Result<bool, Failure>) -> Result<(), Failure> {
        let mut now = Egress::default();
        for set in count::READ {
            let request = count::list_elements(set, SEQ);
            ask(&self.socket, request, SEQ, |message| count::read(&mut now, message))
                .stage(STAGE, "reading what the network rules counted")?;
        }
        for part in self.told.news(&now) {
            if !hear(&Event::Egress(Box::new(part.clone())))? {
                break;
            }
            self.told.note(&part);
        }
        Ok(())
    }
}
