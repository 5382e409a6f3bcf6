"""Rules as users write them: `read.p99>+5%`, `waf>+0.1`, `read.p99>20ms for 10s`."""
