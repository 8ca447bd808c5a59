"""The command line: one command, or one group of commands, per file.

broker, health, clock, top     state of a broker; `live` draws top
doctor, monitor                `checkup` has the doctor's checks; files for Prometheus and Grafana
topic, group, pending          topics, consumer groups, scheduled messages
message, dlq, schedule         messages, dead letters, schedules; `schedule_fields`: their flags
send, receive                  messages, one at a time
recall, reschedule, hand_over  scheduled messages, that `message_flags` name; `windows`: many at once
serve, config                  running a broker; `serve_options`: its flags, `exposure`: dangerous
                               settings
backup, restore, verify        data directories
salvage, inspect               damaged data directories; `inspection` reads their files
pipeline                       jobs on Spark: `pipeline_load`, `pipeline_offload`, `pipeline_audit`,
                               `on_spark`
main                           runs commands, turns errors into sentences; `exits`: exit codes
options, completion            flags that several commands share; names for the shell to complete
output, listing, progress      tables and JSON; lists of many pages; progress of long commands
reference                      pages of docs/reference that are made from the code
limits_page, remoting_page     two of these pages
config_example                 an example of a settings file, also made from the code
"""
