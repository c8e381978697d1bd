"""All checks of a machine, in the order of the output. Imports no torch."""

from veriloop.pipeline.doctor.finding import Check
from veriloop.pipeline.doctor.hardware import gpu, memory, processor
from veriloop.pipeline.doctor.isolation import docker, sandbox_layers
from veriloop.pipeline.doctor.machine_under_test import Machine
from veriloop.pipeline.doctor.packages import sampler, versions
from veriloop.pipeline.doctor.system import clock, disks, open_files, ports, processes

MACHINE: tuple[Check[Machine], ...] = (
    Check(name="versions", run=versions),
    Check(name="cpu", run=processor),
    Check(name="gpu", run=gpu),
    Check(name="memory", run=memory),
    Check(name="sampler", run=sampler),
    Check(name="sandbox", run=sandbox_layers),
    Check(name="docker", run=docker),
    Check(name="disk", run=disks),
    Check(name="ports", run=ports),
    Check(name="open files", run=open_files),
    Check(name="processes", run=processes),
    Check(name="clock", run=clock),
)
