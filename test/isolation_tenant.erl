%% One tenant of a pool with room for one instance: what it sees at first, what it does, how it ends.
%% Rule: the next one is let in when its slots are back, and so gets the very same ones.
-module(isolation_tenant).

-export([guest/2, run/2]).

-define(PAGE, 65536).

%% A guest, ready to be rented: the template, and all that its tenants must find.
guest(Description, CompileOpts) ->
    {ok, Mod} = wasmtime:compile(isolation_guest:text(Description), CompileOpts),
    Lane = self(),
    Imports = #{{<<"env">>, <<"mark">>} => fun(_, []) -> Lane ! {marked, self()}, {ok, []} end,
                {<<"env">>, <<"host">>} => fun host/2},
    {ok, Template} = wasmtime_test:prepare(Mod, #{imports => Imports}),
    #{memories := Memories, tables := Tables, passive := {Seed, Length}} = Description,
    Images = numbered(isolation_guest:memories(Description)),
    Passive = isolation_guest:bytes(Seed, Length),
    #{template => Template, look => isolation_guest:look(Description), tables => length(Tables),
      limits => [(Min + 1) * ?PAGE || #{min := Min} <- Memories],
      images => [{name("m", I), Image} || {I, Image} <- Images],
      grown => [{name("m", I), grown(I, Image)} || {I, Image} <- Images],
      initialized => [{name("m", I), initialized(Image, Passive)} || {I, Image} <- Images],
      passive => Length}.

%% What must be there once a memory has grown: zeros behind the image.
grown(I, Image) -> <<Image/binary, 0:((I + 1) * ?PAGE * 8)>>.

%% And once the passive segment was written to its beginning: no earlier tenant's drop counts.
initialized(<<>>, _) -> <<>>;
initialized(Image, Passive) ->
    Length = byte_size(Passive),
    <<_:Length/binary, Rest/binary>> = Image,
    <<Passive/binary, Rest/binary>>.

numbered(List) -> lists:zip(lists:seq(0, length(List) - 1), List).

name(Prefix, I) -> iolist_to_binary([Prefix, integer_to_list(I)]).

%% What a guest asks its host for.
host(Inst, [0]) -> ok = wasmtime:destroy(Inst), {ok, []};
host(_, [1]) -> error(on_purpose);
host(_, [2]) -> [] = os:cmd(":"), {ok, []}.

%% A tenant from its first look to its last: `ok', or what it saw that is not its image.
run(Guest, {Look, Ops, {owner, How}}) ->
    Lane = self(),
    Owner = spawn_monitor(fun() ->
        Inst = new(Guest),
        Lane ! {seen, self(), lived(Guest, Inst, Look, Ops)},
        owned(How, Inst)
    end),
    owner(How, Owner);
run(Guest, {Look, Ops, End}) ->
    Inst = new(Guest),
    Seen = lived(Guest, Inst, Look, Ops),
    ok = finish(End, Inst),
    Seen.

new(#{template := Template}) -> new(Template, 2_000).

%% Where the last owner died, the background thread gives its slots back.
new(Template, Tries) ->
    case wasmtime:instantiate(Template) of
        {ok, Inst} -> Inst;
        {error, #{kind := pool_exhausted}} when Tries > 0 ->
            if Tries > 1_990 -> erlang:yield(); true -> timer:sleep(1) end,
            new(Template, Tries - 1)
    end.

%% Looks, then does what it came for.
lived(Guest, Inst, Look, Ops) ->
    case look(Look, Guest, Inst) of
        ok -> [done(act(Op, Guest, Inst)) || Op <- Ops], ok;
        Foreign -> Foreign
    end.

%% Anything but a result, or an error of the guest's own making, is a failure here.
done({ok, _}) -> ok;
done(ok) -> ok;
done(none) -> ok;
done({error, #{class := trap}}) -> ok;
done({error, #{class := memory}}) -> ok.

%% ---- what it sees ---------------------------------------------------------------------------

look(blind, _, _) -> ok;
look(whole, Guest, Inst) ->
    #{images := Images, look := Expected} = Guest,
    case wasmtime:call(Inst, <<"look">>, []) of
        {ok, Expected} -> memories(Inst, Images);
        {ok, Other} -> {foreign, state, Other, Expected}
    end;
look(grown, #{grown := Grown} = Guest, Inst) ->
    then(look(whole, Guest, Inst), fun() ->
        [{ok, [_]} = wasmtime:call(Inst, name("grow", I), [I + 1]) || {I, _} <- numbered(Grown)],
        memories(Inst, Grown)
    end);
look(segments, #{initialized := Initialized, passive := Length} = Guest, Inst) ->
    then(look(whole, Guest, Inst), fun() ->
        [{ok, []} = wasmtime:call(Inst, name("init", I), [0, 0, Length])
         || {I, {_, <<_, _/binary>>}} <- numbered(Initialized)],
        elements(Guest, Inst),
        memories(Inst, Initialized)
    end).

then(ok, Fun) -> Fun();
then(Foreign, _) -> Foreign.

%% A passive segment of elements that was dropped has not even the three.
elements(#{tables := 0}, _) -> ok;
elements(_, Inst) ->
    {ok, [Size]} = wasmtime:call(Inst, <<"extend0">>, [3, 3]),
    {ok, []} = wasmtime:call(Inst, <<"place0">>, [Size, 0, 3]).

memories(_, []) -> ok;
memories(Inst, [{Name, Expected} | Rest]) ->
    {ok, {_, Size}} = wasmtime:memory_size(Inst, Name),
    case wasmtime:read_memory(Inst, Name, 0, Size) of
        {ok, Expected} -> memories(Inst, Rest);
        {ok, Other} -> {foreign, Name, Size, binary:longest_common_prefix([Expected, Other])}
    end.

%% ---- what it does ---------------------------------------------------------------------------

act({globals, Number}, _, Inst) -> wasmtime:call(Inst, <<"globals">>, [Number]);
act(drop, _, Inst) -> wasmtime:call(Inst, <<"drop">>, []);
act({table, _, _, _}, #{tables := 0}, _) -> none;
act({table, What, T, Args}, #{tables := Tables}, Inst) ->
    wasmtime:call(Inst, name(What, T rem Tables), Args);
act({_, _, _}, #{limits := []}, _) -> none;
act({What, M, Args}, #{limits := Limits}, Inst) ->
    At = M rem length(Limits),
    access(What, At, lists:nth(At + 1, Limits), Args, Limits, Inst).

access(write, I, Limit, [Place, Seed, Length], _, Inst) ->
    wasmtime:write_memory(Inst, name("m", I), place(Place, Limit), isolation_guest:bytes(Seed, Length));
access(copy, I, Limit, [To, From, Length], Limits, Inst) ->
    J = From rem length(Limits),
    Name = iolist_to_binary(["copy", integer_to_list(I), integer_to_list(J)]),
    wasmtime:call(Inst, Name, [place(To, Limit), place(From, lists:nth(J + 1, Limits)), Length]);
access(What, I, _, Args, _, Inst) when What =:= grow; What =:= scatter ->
    wasmtime:call(Inst, name(atom_to_list(What), I), Args);
access(What, I, Limit, [Place | Args], _, Inst) ->
    wasmtime:call(Inst, name(atom_to_list(What), I), [place(Place, Limit) | Args]).

%% Anywhere in the memory and a page beyond.
place(Place, Limit) -> Place rem Limit.

%% ---- how it ends ----------------------------------------------------------------------------

finish(return, Inst) -> wasmtime:destroy(Inst);
finish({trap, Name}, Inst) -> ended(wasmtime:call(Inst, Name, [7]), [trap], Inst);
finish({timeout, Ms}, Inst) ->
    Result = wasmtime:call(Inst, <<"spin">>, [11], #{timeout => Ms}),
    receive {marked, _} -> ok after 0 -> ok end,
    ended(Result, [trap], Inst);
finish({host, destroy}, Inst) -> ended(wasmtime:call(Inst, <<"ask">>, [13, 0]), any, Inst);
finish({host, raise}, Inst) -> ended(wasmtime:call(Inst, <<"ask">>, [13, 1]), [host], Inst);
finish({host, child}, Inst) ->
    {ok, []} = wasmtime:call(Inst, <<"ask">>, [13, 2]),
    wasmtime:destroy(Inst);
finish({running, How}, Inst) ->
    Caller = spawn_monitor(fun() -> exit(wasmtime:call(Inst, <<"spin">>, [17])) end),
    ok = marked(Caller),
    stop(How, Inst, Caller),
    wasmtime:destroy(Inst).

ended({error, #{class := Class}}, Classes, Inst) ->
    true = Classes =:= any orelse lists:member(Class, Classes),
    wasmtime:destroy(Inst).

%% Waits until the guest of that process runs.
marked({Pid, Monitor}) ->
    receive
        {marked, Pid} -> ok;
        {'DOWN', Monitor, process, Pid, Reason} -> error({ended_early, Reason})
    end.

stop(interrupt, Inst, Caller) -> ok = wasmtime:interrupt(Inst), ends(Caller);
stop(destroy, Inst, Caller) -> ok = wasmtime:destroy(Inst), ends(Caller);
stop(child, Inst, Caller) -> [] = os:cmd(":"), stop(interrupt, Inst, Caller);
stop(kill, _, {Pid, Monitor}) ->
    exit(Pid, kill),
    receive {'DOWN', Monitor, process, Pid, Reason} -> killed = Reason end.

ends({Pid, Monitor}) ->
    receive {'DOWN', Monitor, process, Pid, Reason} -> {error, #{kind := _}} = Reason end.

%% The process that has the only handle: it dies with it, idle or in a call.
owned(exits, _) -> ok;
owned(killed, Inst) -> wasmtime:call(Inst, <<"spin">>, [19]).

owner(How, {Pid, Monitor} = Owner) ->
    receive
        {seen, Pid, Seen} -> gone(How, Owner), Seen;
        {'DOWN', Monitor, process, Pid, Reason} -> error({owner_died, Reason})
    end.

gone(exits, {Pid, Monitor}) ->
    receive {'DOWN', Monitor, process, Pid, normal} -> ok end;
gone(killed, {Pid, Monitor} = Owner) ->
    ok = marked(Owner),
    exit(Pid, kill),
    receive {'DOWN', Monitor, process, Pid, killed} -> ok end.
