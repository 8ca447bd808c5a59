"""The command line, one command, or one with its subcommands, per file.

broker, health, clock, top, doctor, monitor         how a broker is: `checkup` is what the doctor looks at, `live` draws top
topic, group, pending, message, dlq, schedule       what it holds; `schedule_fields`: what a schedule is
send, receive, recall, reschedule, hand_over        messages; `windows`: all of a window
serve, config                                       a broker of one's own; `exposure`: settings that are dangerous
backup, restore, verify, salvage, inspect           data directories; `inspection` reads their files
pipeline                                            the jobs on Spark: `pipeline_load`, `pipeline_offload`, `pipeline_audit`, `on_spark`

main                                                runs them, and makes a sentence of an error; `exits`: exit codes
options, completion                                 flags that several share; names that the shell completes
output, progress                                    tables and JSON; how far a long command is
reference, limits_page, remoting_page               pages of docs/reference that are made from the code
config_example                                      an example of a settings file, likewise
"""
