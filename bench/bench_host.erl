%% What the figures were measured on.
-module(bench_host).

-export([facts/0, line/0]).

-spec facts() -> [{wasmtime | otp | schedulers | cpu, binary() | pos_integer()}, ...].
facts() ->
    [{wasmtime, wasmtime:version()}, {otp, list_to_binary(erlang:system_info(otp_release))},
     {schedulers, erlang:system_info(schedulers_online)}, {cpu, cpu()}].

cpu() ->
    Text = case file:read_file("/proc/cpuinfo") of {ok, Bytes} -> Bytes; _ -> <<>> end,
    case re:run(Text, "^model name\\s*:\\s*(.+)$",
                [multiline, {capture, all_but_first, binary}]) of
        {match, [Name]} -> Name;
        nomatch -> list_to_binary(erlang:system_info(system_architecture))
    end.

-spec line() -> iodata().
line() ->
    [{wasmtime, Version}, {otp, Otp}, {schedulers, Schedulers}, {cpu, Cpu}] = facts(),
    io_lib:format("Wasmtime ~ts, OTP ~ts, ~b schedulers, ~ts.~n", [Version, Otp, Schedulers, Cpu]).
