%% Where the pages of a node's slots are, as the kernel tells it; and what makes it move them: swap,
%% a group of its own that is emptied, huge pages. Rule: every setting goes back to what it was.
-module(isolation_pages).

-export([slots/1, with_swap/2, with_group/1, enter/1, squeeze/1, with_setting/3]).

-define(SLOT, (4 bsl 30)).

%% Sums over the slots of a process that map an image: #{mappings, huge_allowed, swap, rss, huge} in
%% KiB. Such a slot begins with a writable mapping of the image.
slots(Pid) ->
    {ok, Text} = file:read_file(["/proc/", Pid, "/smaps"]),
    {_, Sums} = lists:foldl(fun line/2, {outside, #{mappings => 0, huge_allowed => 0}},
                            binary:split(Text, <<"\n">>, [global])),
    Sums.

line(Line, {At, Sums}) ->
    case re:run(Line, "^([0-9a-f]+)-[0-9a-f]+ (....) \\S+ \\S+ \\S+ *(.*)$",
                [{capture, all_but_first, binary}]) of
        {match, [Start, Access, Name]} -> mapping(binary_to_integer(Start, 16), Access, Name, At, Sums);
        nomatch -> {At, field(binary:split(Line, <<":">>), At, Sums)}
    end.

mapping(Start, <<"rw-p">>, <<"/memfd:wasm-image", _/binary>>, _, Sums) ->
    {{Start, within}, maps:update_with(mappings, fun(N) -> N + 1 end, Sums)};
mapping(Start, <<"rw-p">>, _, {Base, _}, Sums) when Start - Base < ?SLOT -> {{Base, within}, Sums};
mapping(Start, _, _, {Base, _}, Sums) when Start - Base < ?SLOT -> {{Base, closed}, Sums};
mapping(_, _, _, _, Sums) -> {outside, Sums}.

field([Name, Value], {_, within}, Sums) ->
    case Name of
        <<"Swap">> -> add(swap, Value, Sums);
        <<"Rss">> -> add(rss, Value, Sums);
        <<"AnonHugePages">> -> add(huge, Value, Sums);
        <<"VmFlags">> -> maps:update_with(huge_allowed, fun(N) -> N + allowed(Value) end, Sums);
        _ -> Sums
    end;
field(_, _, Sums) -> Sums.

add(Key, Value, Sums) ->
    [KiB, <<"kB">>] = string:lexemes(Value, " "),
    maps:update_with(Key, fun(N) -> N + binary_to_integer(KiB) end, binary_to_integer(KiB), Sums).

%% The flag that keeps huge pages out.
allowed(Flags) ->
    case lists:member(<<"nh">>, string:lexemes(Flags, " ")) of
        true -> 0;
        false -> 1
    end.

%% ---- settings -------------------------------------------------------------------------------

%% Runs with swap: the machine's, or a file of 256 MiB in this folder, more than a node has; `none' says why there is none.
with_swap(Dir, Fun) ->
    case file:read_file("/proc/swaps") of
        {ok, Areas} ->
            case binary:split(Areas, <<"\n">>, [global, trim]) of
                [_, _ | _] -> Fun(swap);
                _ -> with_file(filename:join(Dir, "swap"), Fun)
            end;
        {error, Reason} -> Fun({none, Reason})
    end.

with_file(Path, Fun) ->
    Said = os:cmd(lists:flatten(["umask 077; dd if=/dev/zero of='", Path, "' bs=1M count=256 2>&1 && mkswap '",
                                 Path, "' 2>&1 && swapon '", Path, "' 2>&1 && echo made"])),
    Undo = fun() -> os:cmd(lists:flatten(["swapoff '", Path, "' 2>&1; rm -f '", Path, "'"])) end,
    undone(Undo, fun() ->
        case string:find(Said, "made\n", trailing) of
            "made\n" -> Fun(swap);
            _ -> Fun({none, Said})
        end
    end).

%% Runs with a group of memory that a node can be put into; `none' where none can be made.
with_group(Fun) ->
    Name = "wasmtime-test-" ++ os:getpid() ++ integer_to_list(erlang:unique_integer([positive])),
    Groups = [{filename:join("/sys/fs/cgroup/memory", Name), "memory.force_empty", "0"},
              {filename:join("/sys/fs/cgroup", Name), "memory.reclaim", "64M"}],
    with_group(Groups, Fun).

with_group([], Fun) -> Fun(none);
with_group([{Dir, File, Data} | Rest], Fun) ->
    Made = file:make_dir(Dir),
    undone(fun() -> Made =:= ok andalso leave(Dir) end, fun() ->
        case Made =:= ok andalso filelib:is_file(filename:join(Dir, File)) of
            true -> Fun({Dir, File, Data});
            false -> with_group(Rest, Fun)
        end
    end).

%% A group goes when its last process has gone.
leave(Dir) -> wasmtime_test:wait_until(fun() -> file:del_dir(Dir) =/= {error, ebusy} end).

%% What a shell does first, to be of the group.
enter(none) -> "";
enter({Dir, _, _}) -> "echo $$ > '" ++ filename:join(Dir, "cgroup.procs") ++ "'; ".

%% Takes memory away from the group; says nothing about how much.
squeeze(none) -> timer:sleep(10);
squeeze({Dir, File, Data}) -> _ = file:write_file(filename:join(Dir, File), Data), ok.

%% Runs with a setting of the system; false where it cannot be set.
with_setting(Path, Value, Fun) ->
    case file:read_file(Path) of
        {ok, Text} ->
            [_, Rest] = binary:split(Text, <<"[">>),
            [Before, _] = binary:split(Rest, <<"]">>),
            undone(fun() -> file:write_file(Path, Before) end,
                   fun() -> Fun(file:write_file(Path, Value) =:= ok) end);
        {error, _} -> Fun(false)
    end.

%% Runs, and undoes what was set up: also when the process is killed, as one is that takes too long.
undone(Undo, Fun) ->
    Self = self(),
    Guard = spawn(fun() ->
        Monitor = monitor(process, Self),
        receive {'DOWN', Monitor, _, _, _} -> ok; {Self, undo} -> ok end,
        _ = Undo(),
        Self ! {self(), undone}
    end),
    try Fun()
    after
        Guard ! {Self, undo},
        receive {Guard, undone} -> ok end
    end.
